"""The web page: serves the files that `hatch_build.py` has built from `web/`.

It must not know what the page does, nor anything of runs: it maps addresses to files.
"""

from dromos.web.mount import mount

__all__ = ["mount"]
