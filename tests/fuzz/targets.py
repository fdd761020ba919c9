"""All targets."""

from __future__ import annotations

from contextlib import ExitStack

from tests.fuzz import agents, served, texts, tools, wires
from tests.fuzz.target import Target
from tests.fuzz.world import world

PURE: tuple[Target, ...] = (*texts.TARGETS, *agents.TARGETS, *tools.TARGETS, *wires.TARGETS)
"""Those that need nothing but themselves."""


def every(stack: ExitStack, only: list[str]) -> list[Target]:
    """All of them, or those of these names; what they need is ended with the stack."""
    found = [target for target in PURE if not only or target.name in only]
    if only and len(found) == len(set(only)):
        return found
    daemons = served.targets(stack.enter_context(world()))
    return [*found, *(target for target in daemons if not only or target.name in only)]
