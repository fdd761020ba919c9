"""A landing's commit message: title, body, and who else wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_orchestrator.changes.merge.model import Person

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRAILER = re.compile(r"[A-Za-z0-9-]+: \S")
_PERSON = re.compile(r"(.*)<([^<>\n]+)>")


def message(title: str, body: str, *, fallback: str, others: Iterable[Person] = ()) -> str:
    """Put a commit message together; whoever else wrote it is named once, below what the body says itself."""
    first = " ".join(_CONTROL.sub(" ", title).split()) or fallback
    text = _CONTROL.sub("", body.replace("\r\n", "\n")).strip()
    known = text.lower()
    names = [f"Co-authored-by: {name} <{address}>" for name, address in others if f"<{address.lower()}>" not in known]
    parts = [part for part in (first, text) if part]
    if not names:
        return "\n\n".join(parts) + "\n"
    if text and ends_in_trailers(text):
        return "\n\n".join(parts) + "\n" + "\n".join(names) + "\n"
    return "\n\n".join([*parts, "\n".join(names)]) + "\n"


def ends_in_trailers(text: str) -> bool:
    """Is the last paragraph made of nothing but `Key: value` lines?"""
    paragraph = text.rstrip().rpartition("\n\n")[2]
    return all(_TRAILER.match(line) for line in paragraph.splitlines())


def person(text: str) -> Person | None:
    """Read `Name <address>`."""
    found = _PERSON.fullmatch(text.strip())
    return (found.group(1).strip() or found.group(2).partition("@")[0], found.group(2)) if found else None


def distinct(people: Iterable[Person], but: Person) -> list[Person]:
    """Everybody once, by address, without one."""
    seen = {but[1].lower()}
    found = []
    for someone in people:
        if someone[1].lower() not in seen:
            seen.add(someone[1].lower())
            found.append(someone)
    return found
