"""Find out whether two sides that merge still change the same place: `parse_sections`, `overlaps`. Pure functions.

Git determines where functions and sections begin: `git diff -W` shows a change with the whole function around it. The hunks of both sides
are counted in lines of their common ancestor, so that they can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIN_DISTANCE = 3
"""Changes with fewer unchanged lines between them are at the same place."""
MAX_SECTION_LINES = 400
"""Number of lines; a longer section as Git sees it rarely is one function."""

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
"""File extensions by the name of Git's built-in diff driver, used where the repository assigns none."""

ATTRIBUTES = "".join(f"*.{end} diff={driver}\n" for driver, ends in DRIVERS.items() for end in ends.split())


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the lines [start, end) of the ancestor were replaced."""

    start: int
    end: int
    lines: tuple[str, ...]

    def is_near(self, other: Edit) -> bool:
        """Return whether both changes are at the same place or closer than `MIN_DISTANCE` lines."""
        return self.start < other.end + MIN_DISTANCE and other.start < self.end + MIN_DISTANCE


@dataclass(frozen=True, slots=True)
class ChangedSection:
    """A function or section of the ancestor, lines [start, end), and its changes."""

    start: int
    end: int
    is_whole: bool
    """Whether it is a real section: it begins with a heading and is not too long."""
    edits: tuple[Edit, ...]


def overlaps(ours: Sequence[ChangedSection], theirs: Sequence[ChangedSection]) -> bool:
    """Return whether both sides change the same function or section, or lines next to each other.

    Changes that both sides made alike do not count.
    """
    common_edits = {edit for section in ours for edit in section.edits} & {
        edit for section in theirs for edit in section.edits
    }
    return any(
        _sections_conflict(section, other_section, common_edits)
        for section in ours
        for other_section in theirs
        if set(section.edits) - common_edits and set(other_section.edits) - common_edits
    )


def _sections_conflict(section: ChangedSection, other_section: ChangedSection, common_edits: set[Edit]) -> bool:
    """Return whether two sections overlap or have changes close to each other, apart from the common changes."""
    if (
        section.is_whole
        and other_section.is_whole
        and section.start < other_section.end
        and other_section.start < section.end
    ):
        return True
    return any(
        a.is_near(b)
        for a in section.edits
        if a not in common_edits
        for b in other_section.edits
        if b not in common_edits
    )


def parse_sections(out: str) -> dict[tuple[str, str], dict[str, list[ChangedSection]]]:
    """Parse the output of `diff-tree --stdin -p -W -U0 -z` for pairs of trees: for each pair, the sections by path.

    A removed file has no sections: if its removal merges, the file was moved.
    """
    sections: dict[tuple[str, str], dict[str, list[ChangedSection]]] = {}
    files: dict[str, list[ChangedSection]] = {}
    path = ""
    lines = out.split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if _TREES.fullmatch(line):
            before, _, after = line.partition(" ")
            files = sections.setdefault((before, after), {})
        elif line.startswith("diff --git "):
            path = ""
        elif line.startswith("--- a/"):
            path = line[6:].rstrip("\t")
        elif line == "+++ /dev/null":
            path = ""
        elif match := _HUNK.match(line):
            end = _end_of_hunk(lines, number)
            if path:
                files.setdefault(path, []).append(_make_section(int(match[1]), int(match[2] or 1), lines[number:end]))
            number = end
    return sections


def _end_of_hunk(lines: Sequence[str], start: int) -> int:
    """Return the number of the line after the hunk that begins at `start`."""
    return next(
        (number for number in range(start, len(lines)) if lines[number][:1] not in (" ", "+", "-", "\\")), len(lines)
    )


def _make_section(first: int, count: int, body: Sequence[str]) -> ChangedSection:
    """Return the section of a hunk, from its first line, its number of lines in the ancestor and its body."""
    start = first if count else first + 1
    end = start + count
    edits = tuple(_edits(start, body))
    heading = next((line[1:] for line in body if line[:1] in (" ", "-")), "")
    has_heading = start > 1 or (_HEADING.match(heading) and not _NO_HEADING.match(heading))
    has_edit_inside = any(edit.end > start for edit in edits)
    return ChangedSection(start, end, bool(has_heading) and has_edit_inside and count <= MAX_SECTION_LINES, edits)


def _edits(line: int, body: Sequence[str]) -> Iterator[Edit]:
    """Yield the changes of a hunk whose body begins at this line of the ancestor."""
    start, edit_lines = line, list[str]()
    for text in [*body, " "]:
        prefix = text[:1]
        if prefix in ("+", "-"):
            edit_lines.append(text)
            line += prefix == "-"
        elif prefix != "\\":
            if edit_lines:
                yield Edit(start, line, tuple(edit_lines))
            line += 1
            start, edit_lines = line, []
