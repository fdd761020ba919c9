"""What terminal plugins share: how a program is started, and what is said where that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.errors import Missing, Temporary, UsageError
from agent_orchestrator.protocols import Window
from agent_orchestrator.protocols.host import Completed, Host
from agent_orchestrator.protocols.text import one_line

WITHIN = 20.0
"""Seconds that a program has to hand a window over to the one that shows it."""


async def hand_over(host: Host, argv: Sequence[str], window: Window, *, what: str) -> Completed:
    """Run a program that asks a running terminal for a window, and ends."""
    try:
        done = await host.run(argv, cwd=window.cwd, timeout=WITHIN)
    except Temporary as error:
        raise Missing(f"{what}: {error.text}", by_hand(window)) from None
    if done.code:
        said = one_line((done.err or done.out).decode(errors="replace"), 200)
        raise Missing(f"{what}: {Path(argv[0]).name} failed: {said or f'exit {done.code}'}", by_hand(window))
    return done


async def leave_running(host: Host, argv: Sequence[str], window: Window) -> None:
    """Start a program that is the window itself, and lives as long."""
    await host.spawn(argv, cwd=window.cwd)


def program(host: Host, name: str, window: Window) -> str:
    """Where a program is; `Missing` says what to do without."""
    found = host.which(name)
    if found is None:
        raise Missing(f"{name} is not installed", f"install it, choose another `terminal`, or {by_hand(window)}")
    return found


def by_hand(window: Window) -> str:
    """What a person may do himself."""
    return f"run `ao attach {window.session}` in a terminal of your own"


def choice(config: Mapping[str, Any], plugin: str, key: str, values: Sequence[str]) -> str:
    """One of a few words, the first unless another is given; other keys are wrong."""
    for other in config:
        if other != key:
            raise UsageError(f"terminal {plugin} knows no {other!r}", f"it knows {key}: {', '.join(values)}")
    given = config.get(key, values[0])
    if given not in values:
        raise UsageError(f"terminal {plugin}: {key} is {given!r}", f"write one of {', '.join(values)}")
    return str(given)


def nothing(config: Mapping[str, Any], plugin: str) -> None:
    """Refuse options where there are none."""
    for key in config:
        raise UsageError(f"terminal {plugin} knows no {key!r}", "it has no options: leave it out")
