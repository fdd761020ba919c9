"""Aider's prompts: it has no tools and no session id, and adds examples before the user's text and rules after it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.testing.model.conversation import ConversationEntry

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


def without_aider_additions(entries: Sequence[ConversationEntry]) -> list[ConversationEntry]:
    """Return the conversation without Aider's additions; conversations of other agents are unchanged."""
    start = next((n for n, entry in enumerate(entries) if _contains(entry, _EXAMPLES_END)), None)
    typed = [entry for entry in entries if entry.role == "system"] if start is not None else []
    remaining = entries if start is None else entries[start + 2 :]
    for entry in remaining:
        if entry.role != "user":
            typed.append(entry)
        elif not _ABOUT_FILES.match(entry.text):
            typed.append(ConversationEntry("user", _RULES.sub("", entry.text)))
    return typed


def _contains(entry: ConversationEntry, what: re.Pattern[str]) -> bool:
    return entry.role == "user" and what.match(entry.text) is not None
