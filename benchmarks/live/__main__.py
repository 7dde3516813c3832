"""`python -m benchmarks.live [NAME …] [--full]`: measure and print; with `--full`, keep the table."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import run

NAMES = ("fuzzed", "events", "devices", "stuck", "bytes")
RESULTS = Path(__file__).parents[1] / "RESULTS-live.md"

if __name__ == "__main__":
    run("benchmarks.live", NAMES, RESULTS, "Results of the live box")
