"""What the documentation's site needs beside the pages: those outside `docs`, and headings' anchors as the forges make them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_config(config: Any) -> Any:
    """Links to headings are the same here and in a forge."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchor
    return config


def on_files(files: Files, config: Any) -> Files:
    """The two pages that lie where forges look for them."""
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that lead out of `docs`: to those pages; a file of the sources is only named."""
    for name, page in OUTSIDE.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return re.sub(r"\[([^\]]+)\]\(\.\./((?:src|examples|tests)/[^)]+)\)", r"\1 (`\2`)", markdown)


def _anchor(title: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", separator)
