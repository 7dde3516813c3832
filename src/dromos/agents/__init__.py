"""Adapters for the engines that run agents."""
