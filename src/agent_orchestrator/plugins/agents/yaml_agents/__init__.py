"""More CLIs of the field: each is the `command` agent with the description in a YAML file beside this one (docs/agents/others.md).

What a profile says in `options` is laid over the description, key by key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.plugins.agents.command import Command

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host


@cache
def description(name: str) -> Mapping[str, Any]:
    """What the `command` agent is told of this CLI."""
    from ruamel.yaml import YAML

    found: Mapping[str, Any] = YAML(typ="safe").load(
        (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    )
    return found


def _described(name: str) -> Callable[[Mapping[str, Any], Host], Command]:
    return lambda config, host: Command({**description(name), **config}, host)


amp = _described("amp")
auggie = _described("auggie")
crush = _described("crush")
droid = _described("droid")
qwen = _described("qwen")
