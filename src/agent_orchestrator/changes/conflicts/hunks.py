"""Whether two sides that merge well still change the same place. Pure.

Git itself says where functions and sections begin: `git diff -W` shows a change with the whole function around it. Both sides' hunks are
counted in lines of their common ancestor, so they can be laid side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NEAR = 3
"""Changes with fewer unchanged lines than this between them are at the same place."""
LONGEST_SECTION = 400
"""Lines; what Git takes for a longer one says little about what belongs together."""

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")
_TREES = re.compile(r"[0-9a-f]{40,64} [0-9a-f]{40,64}")
_HEADING = re.compile(r"[A-Za-z_$#@\[]")
_NO_HEADING = re.compile(
    r"(import|from|use|using|package|include|require|extern|#\s*include|#!|#\s*pragma|@import)\b|#!"
)

DRIVERS = {
    "bash": "sh bash",
    "bibtex": "bib",
    "cpp": "c cc cpp cxx h hh hpp hxx",
    "csharp": "cs",
    "css": "css scss less",
    "elixir": "ex exs",
    "fortran": "f90 f95 f03",
    "golang": "go",
    "html": "html htm xhtml",
    "java": "java",
    "kotlin": "kt kts",
    "markdown": "md markdown",
    "matlab": "m",
    "pascal": "pas pp",
    "perl": "pl pm",
    "php": "php",
    "python": "py pyi",
    "ruby": "rb",
    "rust": "rs",
    "scheme": "scm",
    "tex": "tex",
}
"""Git's built-in knowledge of languages → the files it is asked for where the repository does not say."""

ATTRIBUTES = "".join(f"*.{end} diff={driver}\n" for driver, ends in DRIVERS.items() for end in ends.split())


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the lines [start, end) of the ancestor became something else."""

    start: int
    end: int
    lines: tuple[str, ...]

    def near(self, other: Edit) -> bool:
        """At the same place, or nearly."""
        return self.start < other.end + NEAR and other.start < self.end + NEAR


@dataclass(frozen=True, slots=True)
class Section:
    """A function or section of the ancestor, [start, end), and what was changed in it."""

    start: int
    end: int
    whole: bool
    """It is one: it begins with a heading, and is not too long to mean something."""
    edits: tuple[Edit, ...]


def overlaps(ours: Sequence[Section], theirs: Sequence[Section]) -> bool:
    """Do both change the same function or section, or lines next to each other? What both changed alike does not count."""
    same = {edit for one in ours for edit in one.edits} & {edit for one in theirs for edit in one.edits}
    return any(
        _collide(one, other, same)
        for one in ours
        for other in theirs
        if set(one.edits) - same and set(other.edits) - same
    )


def _collide(one: Section, other: Section, same: set[Edit]) -> bool:
    if one.whole and other.whole and one.start < other.end and other.start < one.end:
        return True
    return any(a.near(b) for a in one.edits if a not in same for b in other.edits if b not in same)


def parse_sections(out: str) -> dict[tuple[str, str], dict[str, list[Section]]]:
    """The output of `diff-tree --stdin -p -W -U0 -z` for pairs of trees: for each pair, sections by path.

    A file that is gone as a whole has none: where that merges well, it was moved.
    """
    found: dict[tuple[str, str], dict[str, list[Section]]] = {}
    files: dict[str, list[Section]] = {}
    path = ""
    lines = out.split("\n")
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if _TREES.fullmatch(line):
            before, _, after = line.partition(" ")
            files = found.setdefault((before, after), {})
        elif line.startswith("diff --git "):
            path = ""
        elif line.startswith("--- a/"):
            path = line[6:].rstrip("\t")
        elif line == "+++ /dev/null":
            path = ""
        elif head := _HUNK.match(line):
            end = _end_of_hunk(lines, place)
            if path:
                files.setdefault(path, []).append(_section(int(head[1]), int(head[2] or 1), lines[place:end]))
            place = end
    return found


def _end_of_hunk(lines: Sequence[str], start: int) -> int:
    return next(
        (place for place in range(start, len(lines)) if lines[place][:1] not in (" ", "+", "-", "\\")), len(lines)
    )


def _section(first: int, count: int, body: Sequence[str]) -> Section:
    start = first if count else first + 1
    end = start + count
    edits = tuple(_edits(start, body))
    heading = next((line[1:] for line in body if line[:1] in (" ", "-")), "")
    named = start > 1 or (_HEADING.match(heading) and not _NO_HEADING.match(heading))
    inside = any(edit.end > start for edit in edits)
    return Section(start, end, bool(named) and inside and count <= LONGEST_SECTION, edits)


def _edits(line: int, body: Sequence[str]) -> Iterator[Edit]:
    start, said = line, list[str]()
    for text in [*body, " "]:
        mark = text[:1]
        if mark in ("+", "-"):
            said.append(text)
            line += mark == "-"
        elif mark != "\\":
            if said:
                yield Edit(start, line, tuple(said))
            line += 1
            start, said = line, []
