"""Checks that every runtime makes before it starts a process, so that bad input is an error with a remedy; its environment and its name."""

from __future__ import annotations

import os
import sys

from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.protocols import LaunchSpec

MAX_ARGUMENT_BYTES = 131_000
"""Linux allows 128 KiB for one argument or variable, whatever the sum."""


def check(spec: LaunchSpec) -> None:
    """Raise `UsageError` or `Missing` if the process could not be started as described."""
    if not spec.argv or not spec.argv[0]:
        raise UsageError(f"session {spec.session} has no command to run", "give its agent a command")
    texts = [*spec.argv, *(f"{name}={value}" for name, value in spec.env.items())]
    if any("\0" in text for text in texts):
        raise UsageError(f"the command of session {spec.session} contains a NUL character", "remove it from the text")
    if invalid_names := [name for name in spec.env if not name or "=" in name]:
        raise UsageError(f"{invalid_names[0]!r} is no name for an environment variable", "rename it")
    sizes = [len(os.fsencode(text)) for text in texts]
    total = sum(sizes) + 16 * len(sizes)
    if (sys.platform == "linux" and max(sizes) > MAX_ARGUMENT_BYTES) or total > os.sysconf("SC_ARG_MAX") - 65_536:
        raise UsageError(
            f"the command of session {spec.session} has an argument of {max(sizes)} bytes, more than the system takes",
            "pass the prompt in a file: `prompt: file` in the agent's configuration",
        )
    if not spec.cwd.is_dir():
        raise Missing(f"the folder {spec.cwd} is not there", "restore the session's workspace")
    if spec.stdin is not None and not spec.stdin.is_file():
        raise Missing(f"the file {spec.stdin} for standard input is not there")


def environment(spec: LaunchSpec, term: str) -> dict[str, str]:
    """Return the process's whole environment: the given one, with a `TERM` that fits the terminal unless it has a useful one."""
    own_term = spec.env.get("TERM", "")
    return {**spec.env, "TERM": term if own_term in ("", "dumb") else own_term}


def safe_name(session: str, generation: int) -> str:
    """Return one launch's name: letters, digits and `-_@~` only; different launches never share one."""
    return (
        "".join(
            character if (character.isascii() and character.isalnum()) or character in "-_" else f"~{ord(character):x}~"
            for character in session
        )
        + f"@{generation}"
    )
