"""Names of sessions, branches and issues: checked, parsed and derived. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from agent_orchestrator.base.git.refs import is_valid_branch
from agent_orchestrator.base.text.templates import render
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols.text import clean_text

MAX_NAME_LENGTH = 40
"""Maximum length of a derived name."""
MAX_BRANCH_BYTES = 1000
"""Maximum length of a branch's name in bytes: it is a path in Git's folder, below the repository's own."""
MAX_BRANCH_PART_BYTES = 250
"""Maximum length in bytes between two slashes: a file's name has at most 255, and Git's lock file adds `.lock`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ISSUE = re.compile(r"#?(\d+)|GH-(\d+)|([A-Z][A-Z0-9]+-\d+)", re.IGNORECASE | re.ASCII)
_ISSUE_URL = re.compile(
    r"https?://\S+?/(?:issues?|work_items|browse)/([A-Z][A-Z0-9]*-\d+|\d+)(?:[/?#]\S*)?", re.IGNORECASE | re.ASCII
)


def slug(text: str, most: int = MAX_NAME_LENGTH) -> str:
    """Return a short name made of a text's first words, or "task"."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = ""
    for word in re.findall(r"[a-z0-9]+", ascii_text):
        if name and len(name) + 1 + len(word) > most:
            break
        name = f"{name}-{word}" if name else word[:most]
    return name or "task"


def parse_issue_id(text: str) -> str | None:
    """Return the issue that a text names in its normal form (`123`, `LIN-3`), or None."""
    text = text.strip()
    if match := _ISSUE.fullmatch(text):
        number, github, key = match.groups()
        return number or github or key.upper()
    if match := _ISSUE_URL.fullmatch(text):
        return match.group(1).upper()
    return None


def normalize_issue(text: str) -> str:
    """Return the issue that a person named in its normal form; the URL of an unknown tracker stays as it is."""
    issue = parse_issue_id(text)
    if issue is None and not text.strip().lower().startswith(("http://", "https://")):
        raise UsageError(f"{text!r} names no issue", "write it as 123, #123, GH-123, LIN-3, or as a URL")
    return issue or text.strip()


def validate_name(name: str) -> str:
    """Return a session's name unchanged if it is valid; raise `UsageError` otherwise."""
    if not _NAME.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        raise UsageError(
            f"{name!r} cannot be a session's name",
            f"letters, digits, dots, dashes and underscores only, such as {slug(name)}",
        )
    return name


def free_name(base_name: str, used: Collection[str]) -> str:
    """Return the name, or the name with the first free number."""
    name, number = base_name, 1
    while name in used:
        number += 1
        name = f"{base_name}-{number}"
    return name


def suggested_branch(branch: str | None) -> str | None:
    """Return the branch that a tracker suggests for an issue if it is a valid name, or None."""
    return branch if branch and _can_be_branch(branch) else None


def branch_for(name: str, issue: str | None, project: ProjectConfig) -> str:
    """Return a session's branch: `feature/issue-123` for an issue, else `feature/<name>`, or by the project's pattern."""
    base_name = f"issue-{slug(issue)}" if issue else name
    if project.branch_pattern is None:
        return normalize_branch(f"feature/{base_name}")
    variables = {"name": base_name, "issue": issue or "", "project": project.id, "prefix": project.session_prefix}
    return normalize_branch(render(project.branch_pattern, variables))


def normalize_branch(branch: str) -> str:
    """Return a valid branch name without `refs/heads/`; raise `UsageError` for an invalid one."""
    branch = branch.removeprefix("refs/heads/")
    if not _can_be_branch(branch):
        raise UsageError(
            f"{branch[:100]!r} cannot be a branch's name", f"choose another, such as feature/{slug(branch)}"
        )
    return branch


def _can_be_branch(name: str) -> bool:
    """Return whether Git accepts the name, all of it is visible, and every file system can store it."""
    if not is_valid_branch(name) or name != clean_text(name):
        return False
    content = name.encode()
    return len(content) <= MAX_BRANCH_BYTES and max(map(len, content.split(b"/"))) <= MAX_BRANCH_PART_BYTES


def title_of(text: str) -> str:
    """Return a text's first line as a title of at most 100 characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 100 else line[:99] + "…"
