"""Names: of sessions, branches and issues. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from agent_orchestrator.base.git.refs import valid_branch
from agent_orchestrator.base.text.templates import render
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols.text import clean_text

LONGEST_NAME = 40
LONGEST_BRANCH = 1000
"""Bytes of a branch's name: it is a path in Git's folder, below the repository's own."""
LONGEST_PART = 250
"""Bytes between two slashes of it: a file's name has 255 at most, and Git's lock beside it adds `.lock`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ISSUE = re.compile(r"#?(\d+)|GH-(\d+)|([A-Z][A-Z0-9]+-\d+)", re.IGNORECASE | re.ASCII)
_ISSUE_URL = re.compile(
    r"https?://\S+?/(?:issues?|work_items|browse)/([A-Z][A-Z0-9]*-\d+|\d+)(?:[/?#]\S*)?", re.IGNORECASE | re.ASCII
)


def slug(text: str, most: int = LONGEST_NAME) -> str:
    """A short name made of a text's first words."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    short = ""
    for word in re.findall(r"[a-z0-9]+", plain):
        if short and len(short) + 1 + len(word) > most:
            break
        short = f"{short}-{word}" if short else word[:most]
    return short or "task"


def issue_id(text: str) -> str | None:
    """The issue that a text names, in one form: `123`, `LIN-3`; none if it names none."""
    text = text.strip()
    if found := _ISSUE.fullmatch(text):
        number, github, key = found.groups()
        return number or github or key.upper()
    if found := _ISSUE_URL.fullmatch(text):
        return found.group(1).upper()
    return None


def checked_issue(text: str) -> str:
    """The issue that a person named, in one form; a URL of a tracker we do not know stays as it is."""
    found = issue_id(text)
    if found is None and not text.strip().lower().startswith(("http://", "https://")):
        raise UsageError(f"{text!r} names no issue", "write it as 123, #123, GH-123, LIN-3, or as a URL")
    return found or text.strip()


def checked_name(name: str) -> str:
    """A session's name as given, if it can be one."""
    if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        raise UsageError(
            f"{name!r} cannot be a session's name",
            f"letters, digits, dots, dashes and underscores only, such as {slug(name)}",
        )
    return name


def free_name(wanted: str, taken: Collection[str]) -> str:
    """The name, or the name with the first free number."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def suggested_branch(branch: str | None) -> str | None:
    """The branch that a tracker suggests for an issue, if it can be one."""
    return branch if branch and _can_be_branch(branch) else None


def branch_for(name: str, issue: str | None, project: ProjectConfig) -> str:
    """A session's branch: `feature/issue-123` for an issue, `feature/<name>` otherwise, or what the pattern says."""
    short = f"issue-{slug(issue)}" if issue else name
    if project.branch_pattern is None:
        return checked_branch(f"feature/{short}")
    variables = {"name": short, "issue": issue or "", "project": project.id, "prefix": project.session_prefix}
    return checked_branch(render(project.branch_pattern, variables))


def checked_branch(branch: str) -> str:
    """A branch's name as given, if Git takes it; `refs/heads/` before it is left out."""
    branch = branch.removeprefix("refs/heads/")
    if not _can_be_branch(branch):
        raise UsageError(
            f"{branch[:100]!r} cannot be a branch's name", f"choose another, such as feature/{slug(branch)}"
        )
    return branch


def _can_be_branch(name: str) -> bool:
    """Does Git take it, a reader see all of it, and every file system have room for it?"""
    if not valid_branch(name) or name != clean_text(name):
        return False
    whole = name.encode()
    return len(whole) <= LONGEST_BRANCH and max(map(len, whole.split(b"/"))) <= LONGEST_PART


def title_of(text: str) -> str:
    """A text's first line, as a title."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 100 else line[:99] + "…"
