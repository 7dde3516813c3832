"""The command line. It must not decide anything about runs: it starts the server through `bootstrap`, or speaks to a
running one through `client`."""

from dromos.cli.app import main

__all__ = ["main"]
