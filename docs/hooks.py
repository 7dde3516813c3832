"""A hook of the site's build: no built page may load anything from another host.

Links that a reader clicks are fine; styles, scripts, fonts and pictures must come with the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_LOADS = re.compile(
    r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=[\"']?(?:https?:)?//[^\"'\s>]+"
)
_STYLE_LOADS = re.compile(r"@import[^;]*https?://[^;]+|url\(\s*[\"']?(?:https?:)?//[^)]+\)")


def on_post_build(config: Any, **_: Any) -> None:
    """Fail the build when a page or a style sheet would go to the network."""
    found = []
    for path in Path(config["site_dir"]).rglob("*"):
        pattern = {".html": _LOADS, ".css": _STYLE_LOADS}.get(path.suffix)
        if pattern is not None:
            found += [
                f"{path.name}: {match.group()[:160]}" for match in pattern.finditer(path.read_text("utf-8"))
            ]
    if found:
        raise PluginError("the site must load nothing from the network:\n" + "\n".join(found))
