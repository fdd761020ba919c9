"""MkDocs hooks of the documentation site: pages from outside `docs`, and heading anchors like those of forges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_config(config: Any) -> Any:
    """Make anchors of headings as forges do, so that links work in both."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchor
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie in the repository's root."""
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite links to files outside `docs`: link to the added pages, and only name source files."""
    for name, page in OUTSIDE.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return re.sub(r"\[([^\]]+)\]\(\.\./((?:src|examples|tests)/[^)]+)\)", r"\1 (`\2`)", markdown)


def _anchor(title: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", separator)
