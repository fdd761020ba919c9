"""May it, without asking a person? `permitted(…) -> Verdict`. Pure.

An agent's own settings decide first; what still comes as a request is looked at here, the same for every agent. Only what a person would
read it to be counts: the very same as something allowed, or plain words that are known one by one. Everything else is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent_orchestrator.base.text.redaction import MARK
from agent_orchestrator.protocols.text import visible
from agent_orchestrator.sessions.permissions.git_commands import Named, inside, own_branch
from agent_orchestrator.sessions.permissions.sensitive_files import holds, steers
from agent_orchestrator.sessions.permissions.shell_words import Word, commands

SHELLS = frozenset(("Bash", "bash", "shell", "Shell", "run_shell_command"))
"""What agents call the tool that runs a command line."""
LONGEST = 20_000
_CUT = "⟦… "

_LOOKING = {
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
"""`ao` commands that change nothing and come to an end, each with the options with which that is so."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why it may be done; nothing: a person must be asked. Whoever sees the files looks whether they bear out what it says by its
    letters: `paths` must not lead out of the workspace, `changed` not to a file that says what is run, `files` are no folders, and
    where Git runs, in `folder`, there is no other repository.
    """

    why: str = ""
    paths: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folder: str | None = None

    def __bool__(self) -> bool:
        return bool(self.why)


ASK = Verdict()


def told(command: str) -> str:
    """A command as it is kept, shown and compared: whole, or by its digest too; whatever is not seen is written as its number."""
    if len(command) > LONGEST:
        digest = hashlib.sha256(command.encode(errors="surrogatepass")).hexdigest()
        return f"{visible(command[:LONGEST])}{_CUT}{len(command)} characters in all, sha256 {digest}⟧"
    return visible(command)


def is_whole(command: str) -> bool:
    """Does what is kept and shown of a command tell all of it? No command has our mark in it: there it is written as its number."""
    return _CUT not in command


def permitted(
    tool: str,
    command: str,
    mode: str,
    own: Iterable[str],
    allowed: Iterable[tuple[str, str]],
    workspace: str = "",
    folder: str = "",
    hooks: Collection[str] = (),
) -> Verdict:
    """May this be done without asking? `own` are the project's commands, `allowed` what a person allowed for good.

    `folder` is where in the workspace it is done, `hooks` are folders in it from which Git runs hooks.
    """
    whole = MARK not in command  # where a secret was taken out, nobody knows what stood there
    if whole and (tool, command) in set(allowed):
        return Verdict("a person allowed it for good")
    if mode == "full":
        return Verdict("everything is allowed")
    if mode != "auto-edit" or not command or not whole:
        return ASK
    if tool == "continue":
        return Verdict("it only goes on with its work")
    if tool in ("edit", "read"):
        return _files(tool, command, hooks)
    if tool not in SHELLS:
        return ASK
    if command in set(own):
        return Verdict("it is the project's own command")
    named = plain_git(command, workspace, folder)
    if named is None or any(steers(path, hooks) for path in named.changed):
        return ASK
    if any(holds(path, hooks) for path in named.places):
        return ASK
    return Verdict("it is Git on its own branch", named.paths, named.changed, named.files, named.folder)


def _files(tool: str, command: str, hooks: Collection[str]) -> Verdict:
    """Files below the workspace by their letters, and none of Git's own. Several are told with commas between them."""
    names = tuple(dict.fromkeys((command, *command.split(", "))))
    for name in names:
        parts = name.split("/")
        if visible(name) != name or "\n" in name or "\t" in name or re.match(r"[A-Za-z]:|\s", name):
            return ASK
        if inside(Word(name), "") is None or any(part in ("", ".") for part in parts) or name.endswith(" "):
            return ASK
        if tool == "edit" and steers(name, hooks):
            return ASK
    return Verdict("it is a file of its workspace", names, names if tool == "edit" else ())


def only_looks(command: str) -> bool:
    """A single `ao` command that changes nothing."""
    lines = commands(command)
    if lines is None or len(lines) != 1 or lines[0][0] != Word("ao") or len(lines[0]) < 2 or lines[0][1].quoted:
        return False
    known = _LOOKING.get(lines[0][1].text)
    if known is None:
        return False
    options = [word.text.partition("=")[0] for word in lines[0][2:] if word.text.startswith("-")]
    return all(option in known.split() for option in options) and not any(word.several for word in lines[0])


def plain_git(command: str, workspace: str = "", folder: str = "") -> Named | None:
    """What Git commands name, where they change nothing but the session's own branch and files; none: it is more than that."""
    lines = commands(command)
    if lines is None:
        return None
    if workspace and len(lines) > 1 and lines[0] == [Word("cd"), Word(workspace)]:
        lines, folder = lines[1:], ""
    found = Named(folder=folder)
    for words in lines:
        named = own_branch(words, workspace, folder)
        if named is None:
            return None
        found += named
    return found
