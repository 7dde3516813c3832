"""`python -m benchmarks.effects [NAME …] [--full]`: measure and print; with `--full`, keep the table."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import run

NAMES = ("approvals", "followups", "stops", "journal", "soak")
RESULTS = Path(__file__).parents[1] / "RESULTS-effects.md"

if __name__ == "__main__":
    run("benchmarks.effects", NAMES, RESULTS, "Results of outside effects")
