"""Functions that terminal plugins share: how a program is started, and the errors if that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.errors import Missing, Temporary, UsageError
from agent_orchestrator.protocols import Window
from agent_orchestrator.protocols.host import Host, ProgramResult
from agent_orchestrator.protocols.text import one_line

OPEN_TIMEOUT = 20.0
"""Seconds that a program has to pass a window on to the terminal that shows it."""


async def request_window(host: Host, argv: Sequence[str], window: Window, *, what: str) -> ProgramResult:
    """Run a program that asks a running terminal for a window, and ends. Raises `Missing` if it fails."""
    try:
        result = await host.run(argv, cwd=window.cwd, timeout=OPEN_TIMEOUT)
    except Temporary as error:
        raise Missing(f"{what}: {error.text}", manual_remedy(window)) from None
    if result.code:
        output = one_line((result.err or result.out).decode(errors="replace"), 200)
        raise Missing(f"{what}: {Path(argv[0]).name} failed: {output or f'exit {result.code}'}", manual_remedy(window))
    return result


async def start_window(host: Host, argv: Sequence[str], window: Window) -> None:
    """Start a program that is the window itself, and lives as long."""
    await host.spawn(argv, cwd=window.cwd)


def find_program(host: Host, name: str, window: Window) -> str:
    """Return the program's path. Raises `Missing`, with a remedy, if it is not installed."""
    path = host.which(name)
    if path is None:
        raise Missing(f"{name} is not installed", f"install it, choose another `terminal`, or {manual_remedy(window)}")
    return path


def manual_remedy(window: Window) -> str:
    """Return the remedy that a person can always use."""
    return f"run `ao attach {window.session}` in a terminal of your own"


def choice(config: Mapping[str, Any], plugin: str, key: str, values: Sequence[str]) -> str:
    """Return the configured value of an option, by default the first. Raises `UsageError` for other values and other options."""
    for other in config:
        if other != key:
            raise UsageError(f"terminal {plugin} knows no {other!r}", f"it knows {key}: {', '.join(values)}")
    value = config.get(key, values[0])
    if value not in values:
        raise UsageError(f"terminal {plugin}: {key} is {value!r}", f"write one of {', '.join(values)}")
    return str(value)


def refuse_options(config: Mapping[str, Any], plugin: str) -> None:
    """Raise `UsageError` if there are options."""
    for key in config:
        raise UsageError(f"terminal {plugin} knows no {key!r}", "it has no options: leave it out")
