"""Make the message of a merge commit: the title and body of a pull request's merge, and the co-authors.

A merge at a forge gets only its title here (`MergeOptions.title`); its body stays empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_orchestrator.changes.merge.model import Person
from agent_orchestrator.protocols.text import neutralize_forge_commands

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRAILER = re.compile(r"[A-Za-z0-9-]+: \S")
_PERSON = re.compile(r"(.*)<([^<>\n]+)>")


def merge_title(title: str, number: int) -> str:
    """Return the title of a pull request's merge commit: its own title, which cannot command a forge, and its number."""
    return f"{neutralize_forge_commands(title)} (#{number})"


def merge_body(summary: str, issue: str | None) -> str:
    """Return the body of a pull request's merge commit: the issue that it closes, and the agent's summary, which cannot command a forge."""
    closes = f"Closes #{issue}\n\n" if issue else ""
    return f"{closes}{neutralize_forge_commands(summary)}".strip()


def merge_message(title: str, body: str, *, fallback: str, others: Iterable[Person] = ()) -> str:
    """Return a commit message. Co-authors are named once each, below the body, unless the body names them."""
    subject = " ".join(_CONTROL.sub(" ", title).split()) or fallback
    text = _CONTROL.sub("", body.replace("\r\n", "\n")).strip()
    lower_text = text.lower()
    co_author_lines = [
        f"Co-authored-by: {name} <{address}>" for name, address in others if f"<{address.lower()}>" not in lower_text
    ]
    parts = [part for part in (subject, text) if part]
    if not co_author_lines:
        return "\n\n".join(parts) + "\n"
    if text and ends_in_trailers(text):
        return "\n\n".join(parts) + "\n" + "\n".join(co_author_lines) + "\n"
    return "\n\n".join([*parts, "\n".join(co_author_lines)]) + "\n"


def ends_in_trailers(text: str) -> bool:
    """Return whether the last paragraph has only `Key: value` lines."""
    paragraph = text.rstrip().rpartition("\n\n")[2]
    return all(_TRAILER.match(line) for line in paragraph.splitlines())


def parse_person(text: str) -> Person | None:
    """Parse `Name <address>`; return None if the text has another form."""
    match = _PERSON.fullmatch(text.strip())
    return (match.group(1).strip() or match.group(2).partition("@")[0], match.group(2)) if match else None


def distinct_people(people: Iterable[Person], but: Person) -> list[Person]:
    """Return each person once, by address, without `but`."""
    addresses = {but[1].lower()}
    distinct_people = []
    for candidate in people:
        if candidate[1].lower() not in addresses:
            addresses.add(candidate[1].lower())
            distinct_people.append(candidate)
    return distinct_people
