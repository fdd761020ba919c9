"""More agent CLIs: each is the `command` agent with the description in a YAML file of this folder (docs/agents/others.md).

The `options` of a profile override the description key by key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.plugins.agents.command import CommandAgent

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host


@cache
def description(name: str) -> Mapping[str, Any]:
    """Return the configuration of the `command` agent for this CLI."""
    from ruamel.yaml import YAML

    settings: Mapping[str, Any] = YAML(typ="safe").load(
        (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    )
    return settings


def _factory(name: str) -> Callable[[Mapping[str, Any], Host], CommandAgent]:
    """Return the factory of the agent for this CLI."""
    return lambda config, host: CommandAgent({**description(name), **config}, host)


amp = _factory("amp")
auggie = _factory("auggie")
crush = _factory("crush")
droid = _factory("droid")
qwen = _factory("qwen")
