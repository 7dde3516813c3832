"""Dromos: durable agent runs."""
