"""The rules by which a permission request is allowed without asking a person: `permitted(…) -> Verdict`. Pure.

An agent's own settings decide first; the requests that still arrive are checked here, the same for every agent. A request is allowed only
if it equals something that was allowed, or consists of plain words that are all known; everything else is left to a person.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent_orchestrator.base.text.redaction import REPLACEMENT_PREFIX
from agent_orchestrator.protocols.text import make_visible
from agent_orchestrator.sessions.permissions.autorun_files import can_hold_sensitive_files, is_sensitive
from agent_orchestrator.sessions.permissions.git_parser import GitPaths, parse_git_command, workspace_path
from agent_orchestrator.sessions.permissions.shell_words import Word, parse_commands

SHELL_TOOLS = frozenset(("Bash", "bash", "shell", "Shell", "run_shell_command"))
"""The names by which agents call the tool that runs a command line."""
MAX_COMMAND_LENGTH = 20_000
"""Maximum length of a command that is stored in full."""
_CUT = "⟦… "
"""The mark that begins the note about a shortened command."""

_READ_ONLY_COMMANDS = {
    **dict.fromkeys(("status", "list", "ls"), "--prompt --done -p --project -A --all-projects --json"),
    **dict.fromkeys(("why", "path", "projects", "agents"), "--json"),
    **dict.fromkeys(("queue", "conflicts", "backlog"), "-p --project -A --all-projects --json"),
    "logs": "--raw -n --lines",
    "events": "-n --lines --after -p --project -A --all-projects --json",
    "diff": "--stat --json",
    "issues": "--next --label --closed -p --project -A --all-projects --json",
    "checks": "--log --json",
    "usage": "--by --since -p --project -A --all-projects --json",
}
"""The `ao` commands that change nothing and end by themselves, each with the options for which that is true."""


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """The reason why a request is allowed; without a reason, a person must be asked.

    The names are checked against the files afterwards (`path_checks.py`): `paths` must stay inside the workspace,
    `changed` must not name a file that decides what is run, `files` must not be folders, and in `folder`, where Git
    runs, there must be no other repository.
    """

    reason: str = ""
    paths: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folder: str | None = None

    def __bool__(self) -> bool:
        return bool(self.reason)


ASK_PERSON = RuleDecision()
"""The verdict that a person must be asked."""


def normalize_command(command: str) -> str:
    """Return a command as it is stored, shown and compared: invisible characters as their code, a long command cut and with its digest."""
    if len(command) > MAX_COMMAND_LENGTH:
        digest = hashlib.sha256(command.encode(errors="surrogatepass")).hexdigest()
        return f"{make_visible(command[:MAX_COMMAND_LENGTH])}{_CUT}{len(command)} characters in all, sha256 {digest}⟧"
    return make_visible(command)


def is_complete(command: str) -> bool:
    """Return whether a stored command is complete. No command contains our mark: it would be written as its code."""
    return _CUT not in command


def check_permission(
    tool: str,
    command: str,
    mode: str,
    own: Iterable[str],
    allowed: Iterable[tuple[str, str]],
    workspace: str = "",
    folder: str = "",
    hooks: Collection[str] = (),
) -> RuleDecision:
    """Return whether this may be done without asking. `own` are the project's commands, `allowed` the standing permissions.

    `folder` is where in the workspace it is done, `hooks` are folders in it from which Git runs hooks.
    """
    is_complete = REPLACEMENT_PREFIX not in command  # where a secret was removed, the original text is unknown
    if is_complete and (tool, command) in set(allowed):
        return RuleDecision("a person allowed it for good")
    if mode == "full":
        return RuleDecision("everything is allowed")
    if mode != "auto-edit" or not command or not is_complete:
        return ASK_PERSON
    if tool == "continue":
        return RuleDecision("it only goes on with its work")
    if tool in ("edit", "read"):
        return _check_files(tool, command, hooks)
    if tool not in SHELL_TOOLS:
        return ASK_PERSON
    if command in set(own):
        return RuleDecision("it is the project's own command")
    git_paths = parse_git_line(command, workspace, folder)
    if git_paths is None or any(is_sensitive(path, hooks) for path in git_paths.changed):
        return ASK_PERSON
    if any(can_hold_sensitive_files(path, hooks) for path in git_paths.moved_folders):
        return ASK_PERSON
    return RuleDecision(
        "it is Git on its own branch", git_paths.paths, git_paths.changed, git_paths.files, git_paths.folder
    )


def _check_files(tool: str, command: str, hooks: Collection[str]) -> RuleDecision:
    """Return the verdict for files: all must be below the workspace by name, and none Git's own. Several are separated by commas."""
    names = tuple(dict.fromkeys((command, *command.split(", "))))
    for name in names:
        parts = name.split("/")
        if make_visible(name) != name or "\n" in name or "\t" in name or re.match(r"[A-Za-z]:|\s", name):
            return ASK_PERSON
        if workspace_path(Word(name), "") is None or any(part in ("", ".") for part in parts) or name.endswith(" "):
            return ASK_PERSON
        if tool == "edit" and is_sensitive(name, hooks):
            return ASK_PERSON
    return RuleDecision("it is a file of its workspace", names, names if tool == "edit" else ())


def is_read_only(command: str) -> bool:
    """Return whether the command is a single `ao` command that changes nothing."""
    lines = parse_commands(command)
    if lines is None or len(lines) != 1 or lines[0][0] != Word("ao") or len(lines[0]) < 2 or lines[0][1].quoted:
        return False
    known_options = _READ_ONLY_COMMANDS.get(lines[0][1].text)
    if known_options is None:
        return False
    options = [word.text.partition("=")[0] for word in lines[0][2:] if word.text.startswith("-")]
    return all(option in known_options.split() for option in options) and not any(word.is_pattern for word in lines[0])


def parse_git_line(command: str, workspace: str = "", folder: str = "") -> GitPaths | None:
    """Return what Git commands name, if they change only the session's own branch and files, or None."""
    lines = parse_commands(command)
    if lines is None:
        return None
    if workspace and len(lines) > 1 and lines[0] == [Word("cd"), Word(workspace)]:
        lines, folder = lines[1:], ""
    total = GitPaths(folder=folder)
    for words in lines:
        paths = parse_git_command(words, workspace, folder)
        if paths is None:
            return None
        total += paths
    return total
