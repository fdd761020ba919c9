"""Functions that plugins of agent CLIs share: find the program, build its first message and permissions, press a dialog's keys,
and answer a dialog in advance in a JSON file of the user without losing anything in it.
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

from agent_orchestrator.base.files.safe import UnsafePath
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.plugins.agents.shared import user_files
from agent_orchestrator.protocols import AgentContext, AgentState, InstalledAgent, RunningLaunch

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

VERSION_TIMEOUT = 10.0
DIALOG_TIMEOUT = 5.0
DIALOG_POLL_SECONDS = 0.1
DIALOG_SETTLE_SECONDS = 0.3
"""Seconds: within which a dialog must appear, between two looks, and until it takes a key."""
COMPARED_CHARACTERS = 48
"""The number of characters of a command that a dialog certainly shows."""
MAX_ARGUMENT_BYTES = 100 * 1024
MCP_BRIDGE_COMMAND = (sys.executable, "-P", "-m", "agent_orchestrator", "mcp")
"""The command of our MCP server on standard input and output; `-P` keeps it from importing modules of the workspace."""
MCP_BRIDGE_VARIABLES = ("AO_TOKEN", "AO_HOME")
"""The environment variables that it needs."""

log = structlog.get_logger(__name__)

_RULES_BLOCK = re.compile(r"\A<rules>\n.*?\n</rules>\n\n", re.DOTALL)


def agent_state(folder: Path, *settings: str) -> AgentState:
    """Return a CLI's folder as writable, and the files in it that it takes commands from as read-only."""
    return AgentState((folder,), tuple(folder / name for name in settings))


PATH_REMEDY = "if it is installed, have its folder in your login shell's PATH, then: ao shutdown"
"""The second remedy for a program that was not found."""


def find_program(host: Host, name: str, context: AgentContext, install: str) -> str:
    """Return the CLI's full path in the PATH of the agent's environment; raise `Missing` if it is not there."""
    search_path = context.env.get("PATH")
    path = host.which(name, search_path)
    if path is None:
        raise not_found(name, install, search_path)
    return path


def not_found(name: str, install: str, searched: str | None) -> Missing:
    """Return the error for a missing program; the remedy comes first, since the search path is long."""
    searched_note = f" (it was looked for in {searched})" if searched is not None else ""
    return Missing(f"the agent's program {name!r} was not found", f"{install}; {PATH_REMEDY}{searched_note}")


async def detect(host: Host, name: str, env: Mapping[str, str] | None = None) -> InstalledAgent | None:
    """Return where a CLI is installed and its version, or None; `env` is added to our environment."""
    path = host.which(name)
    if path is None:
        return None
    try:
        result = await host.run([path, "--version"], env={**os.environ, **(env or {})}, timeout=VERSION_TIMEOUT)
    except AoError:
        return InstalledAgent(path)
    version = re.search(r"\d+(?:\.\d+)+[\w.+-]*", result.text)
    return InstalledAgent(path, version[0] if version else "")


def first_message(context: AgentContext) -> str:
    """Return the first message for an agent that takes no system prompt: the rules, then the task."""
    if not context.prompt:
        return ""
    if not context.system:
        return shorten_to_argument(context.prompt, context)
    return f"<rules>\n{context.system}\n</rules>\n\n{shorten_to_argument(context.task or context.prompt, context)}"


def without_rules(text: str) -> str:
    """Return a message without the rules that `opening` put before it."""
    return _RULES_BLOCK.sub("", text, count=1)


def shorten_to_argument(text: str, context: AgentContext) -> str:
    """Return a message that fits into one argument of a command; a longer one is replaced by a reference to the task's file."""
    if len(text.encode(errors="replace")) > MAX_ARGUMENT_BYTES:
        return f"Read your task in the file {context.task_file}, and do what it says."
    return text.replace("\0", "")


def as_argument(text: str) -> str:
    """Return the text with a space in front if it begins with a dash, so that it is not taken for an option."""
    return f" {text}" if text.startswith("-") else text


def is_beginning(text: str, shown_text: str) -> bool:
    """Return whether the text begins with what an input line shows."""
    head = " ".join(shown_text.split())[:40]
    return bool(head) and " ".join(text.split()).startswith(head)


def relative_to_workspace(workspace: Path, path: str) -> str:
    """Return a file's path relative to the workspace if it is in it, otherwise unchanged."""
    return os.path.relpath(path, workspace) if Path(path).is_relative_to(workspace) else path


async def wait_for_dialog_keys(
    run: RunningLaunch, dialog: re.Pattern[str], command: str, keys: Sequence[str] | None
) -> Sequence[str] | None:
    """Return `keys` once a dialog that shows this command has been on the screen for `DIALOG_SETTLE_SECONDS`, or None if it
    does not appear.
    """
    command_start = _squeeze(command)[:COMPARED_CHARACTERS]
    shown_for = 0.0
    for _ in range(int(DIALOG_TIMEOUT / DIALOG_POLL_SECONDS)):
        try:
            screen = await run.screen()
        except AoError:
            return None
        is_shown = bool(dialog.search(screen)) and command_start in _squeeze(screen)
        if is_shown and shown_for >= DIALOG_SETTLE_SECONDS:
            return keys
        shown_for = shown_for + DIALOG_POLL_SECONDS if is_shown else 0.0
        await asyncio.sleep(DIALOG_POLL_SECONDS)
    return None


def _squeeze(text: str) -> str:
    """Return the text without blanks and the edges of boxes, since long text is wrapped."""
    return re.sub(r"[\s│┃|]+", "", text)


def own_commands(context: AgentContext) -> tuple[str, ...]:
    """Return the project's own commands if they need no permission. Only these exact ones; any other is a request that a rule
    may answer.
    """
    return context.commands if context.permissions == "auto-edit" else ()


def merge_json(path: Path, change: Callable[[dict[str, Any]], bool], agents: Path) -> None:
    """Let `change` add to a JSON file of the user and write the file if `change` returns True.

    A file that is not a regular file with a JSON object (after comments at its top) stays as it is, also one that a symlink in
    the folder `agents`, where agents write, leads out of that folder. The file is replaced in one step; its mode and the user's
    own symlinks stay.
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
    except UnsafePath as error:
        log.warning("a file of an agent's CLI is left as it is", file=str(path), error=str(error))
        return
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(data, dict) and change(data):
        user_files.write(path, agents, comments.encode() + _encode_json(data), mode)


def _encode_json(data: Mapping[str, Any]) -> bytes:
    """Return indented JSON; a text with a lone surrogate, which UTF-8 cannot encode, is written with escapes."""
    try:
        return f"{json.dumps(data, indent=2, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(data, indent=2)}\n".encode()
