"""The documentation as data: its pages, their fenced blocks, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "agent_orchestrator"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HANDWRITTEN_PAGES = [page for page in PAGES if page.parent.name != "reference"]
"""The pages that people write; other tests keep the generated ones current."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{page_path(self.page)}:{self.line}"


def page_path(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str | None = None) -> Iterator[Block]:
    """Yield a page's fenced blocks, of one language or of all."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        if language in (None, match[1]):
            yield Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges generate them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
