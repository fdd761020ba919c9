"""Aider has no tools and no session id: it puts worked examples before what the user typed, and its rules after it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.testing.model.conversation import Entry

_EXAMPLES_END = re.compile(r"I switched to a new code base\.")
_RULES = re.compile(
    r"\n\n(?:# \*SEARCH/REPLACE block\* Rules:|To suggest changes to a file you MUST|# File editing rules:).*",
    re.DOTALL,
)
_ABOUT_FILES = re.compile(
    r"Here are summaries of some files present in my git repository"
    r"|I have \*added these files to the chat\*|\*Trust this message\*|I am not sharing any files that you can edit yet"
    r"|Don't try and edit any existing code without asking me|Here are some READ ONLY files"
)


def as_typed(entries: Sequence[Entry]) -> list[Entry]:
    """The conversation without Aider's additions; one of another agent is left as it is."""
    start = next((n for n, entry in enumerate(entries) if _says(entry, _EXAMPLES_END)), None)
    kept = [entry for entry in entries if entry.role == "system"] if start is not None else []
    rest = entries if start is None else entries[start + 2 :]
    for entry in rest:
        if entry.role != "user":
            kept.append(entry)
        elif not _ABOUT_FILES.match(entry.text):
            kept.append(Entry("user", _RULES.sub("", entry.text)))
    return kept


def _says(entry: Entry, what: re.Pattern[str]) -> bool:
    return entry.role == "user" and what.match(entry.text) is not None
