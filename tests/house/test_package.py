"""What people install: the wheel and the source archive hold the built page, and nothing that is not meant."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.house.repository import ROOT

PARTS = ("pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "CHANGELOG.md", "src", "web")


@pytest.mark.slow(120)
def test_the_wheel_and_the_source_archive_bring_the_built_page(tmp_path: Path) -> None:
    if not (ROOT / "src/dromos/web/static/index.html").exists():
        pytest.fail("the page is not built; `make setup` does it")
    unwanted = shutil.ignore_patterns("node_modules", "__pycache__")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tmp_path / part, ignore=unwanted)
        else:
            shutil.copy(source, tmp_path / part)
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist")]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr

    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "dromos/web/static/index.html" in names
    assert any(name.startswith("dromos/web/static/assets/") and name.endswith(".js") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/", 1)[0] for name in names} == {"dromos", "dromos-0.1.0.dist-info"}

    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert {"src/dromos/web/static/index.html", "web/package-lock.json", "hatch_build.py"} <= inside
    assert not [name for name in inside if "node_modules" in name or name.startswith("tests/")]
