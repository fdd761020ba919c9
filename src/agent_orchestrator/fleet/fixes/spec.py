"""What `measure.py` is asked to do, as it is written to a file: `Spec`, `spec_json(spec)`, `spec_from(data)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.fleet.fixes.comparison import Target
from agent_orchestrator.fleet.fixes.model import Tool, tool_from


@dataclass(frozen=True, slots=True)
class Spec:
    """What is to be measured."""

    output: Path
    """Where the report is written to."""
    cache: Path
    """For what tools keep for the next time."""
    tools: tuple[Tool, ...] | None = None
    """None: find them."""
    commands: tuple[str, ...] = ()
    """Instead of what is found: what these run."""
    ci: tuple[str, ...] = ()
    """The configured checks, which are always run."""
    timeout: float = 1800.0
    """Seconds that a tool may take."""
    before: Path | None = None
    """The report of the base."""
    targets: tuple[Target, ...] = ()


def spec_json(spec: Spec) -> dict[str, Any]:
    """As it is written to its file."""
    return {
        "output": str(spec.output),
        "cache": str(spec.cache),
        "tools": None if spec.tools is None else [asdict(tool) for tool in spec.tools],
        "commands": list(spec.commands),
        "ci": list(spec.ci),
        "timeout": spec.timeout,
        "before": str(spec.before) if spec.before else None,
        "targets": [asdict(target) for target in spec.targets],
    }


def spec_from(data: Mapping[str, Any]) -> Spec:
    """What `spec_json` wrote."""
    return Spec(
        output=Path(data["output"]),
        cache=Path(data["cache"]),
        tools=None if data["tools"] is None else tuple(tool_from(tool) for tool in data["tools"]),
        commands=tuple(data["commands"]),
        ci=tuple(data["ci"]),
        timeout=float(data["timeout"]),
        before=Path(data["before"]) if data["before"] else None,
        targets=tuple(Target(**target) for target in data["targets"]),
    )
