"""The build of the page: when it runs, what it may weigh, and what its lock may hold."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import hatch_build

WEB = hatch_build.ROOT / hatch_build.SOURCE


def test_a_build_of_the_same_sources_does_nothing(built: Path) -> None:
    before = (built / "index.html").stat().st_mtime_ns
    assert hatch_build.build() is False
    assert (built / "index.html").stat().st_mtime_ns == before


def test_any_change_of_a_source_changes_the_digest(tmp_path: Path) -> None:
    web = tmp_path / "web"
    (web / "src").mkdir(parents=True)
    (web / "src" / "a.ts").write_text("1")
    (web / "node_modules" / "x").mkdir(parents=True)

    def digest() -> str:
        return hatch_build.digest(hatch_build.source_files(web), web)

    first = digest()
    (web / "node_modules" / "x" / "y.js").write_text("not a source")
    assert digest() == first
    (web / "src" / "a.ts").write_text("2")
    second = digest()
    (web / "src" / "a.ts").rename(web / "src" / "b.ts")
    assert len({first, second, digest()}) == 3


def test_a_tree_with_the_built_page_only_needs_no_build(tmp_path: Path) -> None:
    output = tmp_path / hatch_build.OUTPUT
    output.mkdir(parents=True)
    with pytest.raises(hatch_build.BuildError, match="complete checkout"):
        hatch_build.build(tmp_path)
    (output / "index.html").write_text("page")
    assert hatch_build.build(tmp_path) is False


def test_a_failed_build_says_so_and_leaves_the_old_page(tmp_path: Path) -> None:
    shutil.copytree(WEB, tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / "web" / "node_modules").symlink_to(WEB / "node_modules")
    (tmp_path / "web" / "src" / "main.ts").write_text("import './nothing';")
    output = tmp_path / hatch_build.OUTPUT
    output.mkdir(parents=True)
    (output / "index.html").write_text("old page")
    with pytest.raises(hatch_build.BuildError, match=r"failed at: node .*vite\.js build"):
        hatch_build.build(tmp_path)
    assert (output / "index.html").read_text() == "old page"


def test_the_bundle_is_at_most_150_kilobytes_packed(built: Path) -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in (built / "assets").iterdir()}
    assert sum(sizes.values()) <= 150_000, sizes


def test_the_built_page_names_no_other_host_and_has_nothing_inline(built: Path) -> None:
    index = (built / "index.html").read_text()
    assert re.findall(r"https?://", index) == []
    assert re.findall(r"<script(?![^>]*\ssrc=)", index) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", index) == []
    for path in (built / "assets").glob("*.css"):
        assert "url(" not in path.read_text()


def test_the_lock_holds_digests_and_no_address(built: Path) -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = {name: facts for name, facts in lock["packages"].items() if name}
    assert [name for name, facts in packages.items() if "resolved" in facts] == []
    assert [name for name, facts in packages.items() if "integrity" not in facts] == []


@pytest.mark.slow(90)
@pytest.mark.parametrize(
    "arguments",
    [
        ["node_modules/vitest/vitest.mjs", "run"],
        ["node_modules/svelte-check/bin/svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings"],
    ],
    ids=["unit tests", "types"],
)
def test_the_pages_own_checks_pass(built: Path, arguments: list[str]) -> None:
    node, npm = hatch_build.node()
    hatch_build.install(node, npm, WEB)
    done = subprocess.run([str(node), *arguments], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
