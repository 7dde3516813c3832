"""Figures as ratios in one run against something real. See `python -m benchmarks --help`."""
