"""The site: every page is in the navigation, the build is strict, and pages load nothing from other hosts."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.docs.pages import PAGES, ROOT

SITE = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text())
OUTSIDE = {"contributing.md", "changelog.md"}


def navigated(entry: Any) -> Iterator[str]:
    """Yield the pages of the navigation."""
    if isinstance(entry, str):
        yield entry
    for child in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from navigated(child)


def test_every_page_is_in_the_navigation() -> None:
    existing = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    listed = list(navigated(SITE["nav"]))
    assert sorted(listed) == sorted(existing | OUTSIDE)


def test_the_strict_build_passes_and_pages_load_nothing_remote(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("`make docs` installs what builds the site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?((?:https?:)?//[^\s\">]+)", page.read_text()
        )
        assert loaded == [], page.name
