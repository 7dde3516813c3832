"""The figures of the live box: each in a small size for the tests and in its full size on demand.

    python -m benchmarks.live [NAME …] [--full]

With `--full` each figure goes to its part of RESULTS-live.md.
"""
