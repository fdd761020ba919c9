"""The site: every page has its place in the navigation, the build is strict, and nothing of it comes from elsewhere."""

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
    """The pages of the navigation."""
    if isinstance(entry, str):
        yield entry
    for one in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from navigated(one)


def test_every_page_has_its_place() -> None:
    here = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    places = list(navigated(SITE["nav"]))
    assert sorted(places) == sorted(here | OUTSIDE)


def test_it_is_built_strictly_and_fetches_nothing(tmp_path: Path) -> None:
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
