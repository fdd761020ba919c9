"""What plugins of agent CLIs share: finding the program, its first message, permissions, and answering a dialog ahead in a file of the
user's without losing anything in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from agent_orchestrator.base.files.safe import NotPlain
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.plugins.agents.shared import user_files
from agent_orchestrator.protocols import AgentContext, AgentRun, Found, Kept

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

VERSION_WITHIN = 10.0
DIALOG_WITHIN = 5.0
DIALOG_PAUSE = 0.1
DIALOG_SETTLES = 0.3
"""Seconds: until a dialog must be there, between looks, and until it takes a key."""
SHOWN = 48
"""Characters of a command that a dialog shows for certain."""
LONGEST_ARGUMENT = 100 * 1024
BRIDGE = (sys.executable, "-P", "-m", "agent_orchestrator", "mcp")
"""Our MCP server by standard input and output; the workspace lends it no modules."""
BRIDGE_VARIABLES = ("AO_TOKEN", "AO_HOME")
"""What it needs of the environment."""

log = structlog.get_logger(__name__)

_RULES = re.compile(r"\A<rules>\n.*?\n</rules>\n\n", re.DOTALL)


def kept(folder: Path, *settings: str) -> Kept:
    """A CLI's own folder, of which it only reads what it takes commands from."""
    return Kept((folder,), tuple(folder / name for name in settings))


ELSEWHERE = "if it is installed, have its folder in your login shell's PATH, then: ao shutdown"
"""What else may be wrong where a program is not found."""


def program(host: Host, name: str, context: AgentContext, install: str) -> str:
    """The CLI's full path, as the agent's own environment finds it."""
    searched = context.env.get("PATH")
    found = host.which(name, searched)
    if found is None:
        raise not_found(name, install, searched)
    return found


def not_found(name: str, install: str, searched: str | None) -> Missing:
    """That a program is not there: what to do first, for where it was looked for is long."""
    looked = f" (it was looked for in {searched})" if searched is not None else ""
    return Missing(f"the agent's program {name!r} was not found", f"{install}; {ELSEWHERE}{looked}")


async def detect(host: Host, name: str, env: Mapping[str, str] | None = None) -> Found | None:
    """Is the CLI here, and which version does it say it is? `env` is added to ours."""
    path = host.which(name)
    if path is None:
        return None
    try:
        done = await host.run([path, "--version"], env={**os.environ, **(env or {})}, timeout=VERSION_WITHIN)
    except AoError:
        return Found(path)
    version = re.search(r"\d+(?:\.\d+)+[\w.+-]*", done.text)
    return Found(path, version[0] if version else "")


def opening(context: AgentContext) -> str:
    """The first message to an agent that takes no system prompt: how to work here, then what to do."""
    if not context.prompt:
        return ""
    if not context.system:
        return fitting(context.prompt, context)
    return f"<rules>\n{context.system}\n</rules>\n\n{fitting(context.task or context.prompt, context)}"


def without_rules(text: str) -> str:
    """What a person or the task said in a message, without what `opening` put before it."""
    return _RULES.sub("", text, count=1)


def fitting(text: str, context: AgentContext) -> str:
    """A message as one argument of a command: a very long one is read from the task's file instead."""
    if len(text.encode(errors="replace")) > LONGEST_ARGUMENT:
        return f"Read your task in the file {context.task_file}, and do what it says."
    return text.replace("\0", "")


def as_argument(text: str) -> str:
    """A text that begins with a dash must not be taken for an option."""
    return f" {text}" if text.startswith("-") else text


def begins(text: str, shown: str) -> bool:
    """Is what an input line shows the beginning of this text?"""
    head = " ".join(shown.split())[:40]
    return bool(head) and " ".join(text.split()).startswith(head)


def inside(workspace: Path, path: str) -> str:
    """A file of the workspace by its path in it; any other as it is."""
    return os.path.relpath(path, workspace) if Path(path).is_relative_to(workspace) else path


async def keys_for(
    run: AgentRun, dialog: re.Pattern[str], command: str, keys: Sequence[str] | None
) -> Sequence[str] | None:
    """The keys that answer a dialog, once it has been on the screen for a moment and shows this command; none: it does not."""
    begins = _dense(command)[:SHOWN]
    seen = 0.0
    for _ in range(int(DIALOG_WITHIN / DIALOG_PAUSE)):
        try:
            screen = await run.screen()
        except AoError:
            return None
        shown = bool(dialog.search(screen)) and begins in _dense(screen)
        if shown and seen >= DIALOG_SETTLES:
            return keys
        seen = seen + DIALOG_PAUSE if shown else 0.0
        await asyncio.sleep(DIALOG_PAUSE)
    return None


def _dense(text: str) -> str:
    """Without blanks and the edges of boxes: what is long is wrapped."""
    return re.sub(r"[\s│┃|]+", "", text)


def own_commands(context: AgentContext) -> tuple[str, ...]:
    """The project's own commands, where it need not ask for them: these very ones. All else comes as a request, which a rule may answer."""
    return context.commands if context.permissions == "auto-edit" else ()


def merge_json(path: Path, change: Callable[[dict[str, Any]], bool], agents: Path) -> None:
    """Let `change` add to a JSON file of the user's; it says whether it did. A file that is no plain JSON object (but for comments at its
    top) is left alone; so is one that a symlink in the folder `agents`, where agents write, leads to out of it. The file is replaced in one
    step, and keeps its mode and its place behind the user's own symlinks.
    """
    comments, mode, data = "", 0o600, {}
    try:
        content, mode = user_files.read(path, agents)
        text = content.decode()
        if match := re.match(r"(?:\s*//[^\n]*\n)+", text):
            comments = match[0]
        data = json.loads(text[len(comments) :])
    except FileNotFoundError:
        pass
    except NotPlain as error:
        log.warning("a file of an agent's CLI is left as it is", file=str(path), error=str(error))
        return
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(data, dict) and change(data):
        user_files.write(path, agents, comments.encode() + _as_json(data), mode)


def _as_json(data: Mapping[str, Any]) -> bytes:
    """As people read it; half a character, which JSON can name, stays named."""
    try:
        return f"{json.dumps(data, indent=2, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(data, indent=2)}\n".encode()
