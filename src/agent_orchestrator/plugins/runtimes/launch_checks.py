"""What every runtime checks before it starts a process: bad input ends here, with a remedy, not in the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.protocols import LaunchSpec

REMOVED_AGAIN = 1.0
"""Seconds after which a file that could not be removed is tried again."""
LONGEST_ARGUMENT = 131_000
"""Linux allows 128 KiB for one argument or variable, whatever the sum."""


def check(spec: LaunchSpec) -> None:
    """Raise when the process could not be started as described."""
    if not spec.argv or not spec.argv[0]:
        raise UsageError(f"session {spec.session} has no command to run", "give its agent a command")
    texts = [*spec.argv, *(f"{name}={value}" for name, value in spec.env.items())]
    if any("\0" in text for text in texts):
        raise UsageError(f"the command of session {spec.session} contains a NUL character", "remove it from the text")
    if wrong := [name for name in spec.env if not name or "=" in name]:
        raise UsageError(f"{wrong[0]!r} is no name for an environment variable", "rename it")
    sizes = [len(os.fsencode(text)) for text in texts]
    whole = sum(sizes) + 16 * len(sizes)
    if (sys.platform == "linux" and max(sizes) > LONGEST_ARGUMENT) or whole > os.sysconf("SC_ARG_MAX") - 65_536:
        raise UsageError(
            f"the command of session {spec.session} has an argument of {max(sizes)} bytes, more than the system takes",
            "pass the prompt in a file: `prompt: file` in the agent's configuration",
        )
    if not spec.cwd.is_dir():
        raise Missing(f"the folder {spec.cwd} is not there", "restore the session's workspace")
    if spec.stdin is not None and not spec.stdin.is_file():
        raise Missing(f"the file {spec.stdin} for standard input is not there")


def environment(spec: LaunchSpec, term: str) -> dict[str, str]:
    """The process's whole environment: as given, and a `TERM` that fits the terminal unless a useful one is given."""
    given = spec.env.get("TERM", "")
    return {**spec.env, "TERM": term if given in ("", "dumb") else given}


def safe_name(session: str, generation: int) -> str:
    """One launch's name: letters, digits and `-_@~` only; different launches never share one."""
    return (
        "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else f"~{ord(c):x}~" for c in session)
        + f"@{generation}"
    )


def forget_others(private: Path, kind: str) -> None:
    """Remove what a daemon that was killed had written for one reading; what still comes to read it fails as a whole."""
    for path in private.glob(f"{kind}.*"):
        if path.name.split(".")[1] != str(os.getpid()):
            path.unlink(missing_ok=True)


def forget_ended(private: Path) -> list[Path]:
    """Remove what nobody will come to read any more, where its reader could not (the disk was read-only then); returns what stays."""
    return remove(path for kind in ("launch", "spec", "message") for path in private.glob(f"{kind}.*"))


def remove_surely(paths: Iterable[Path]) -> None:
    """Remove files that hold a message or an environment, later where that cannot be now: they are not left lying, however long the
    disk cannot be written."""
    if left := remove(paths):
        asyncio.get_running_loop().call_later(REMOVED_AGAIN, remove_surely, left)


def remove(paths: Iterable[Path]) -> list[Path]:
    """Remove files; returns those that cannot be removed now."""
    left = []
    for path in [*paths]:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            left.append(path)
    return left
