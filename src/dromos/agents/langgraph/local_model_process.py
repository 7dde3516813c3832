"""The child process of `local_model`: llama.cpp's HTTP server on a free port of this machine.

Arguments: the weights' file and the number of threads. It writes its address on the first line of standard output
and ends when standard input does. It imports nothing of ours.
"""

from __future__ import annotations

import os
import sys

CONTEXT_TOKENS = 4096


def main(weights: str, threads: int) -> None:
    """Serve until standard input ends."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine itself prints is not for our reader
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    answer.write(f"{server.listening_address}\n")
    answer.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # nothing is worth the engine's slow way out


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
