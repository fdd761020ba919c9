"""What `measure.py` is asked to do, and how that is written to a file: `MeasurementSpec`, `spec_to_json(spec)`, `spec_from_json(data)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.fleet.fixes.comparison import TargetFailure
from agent_orchestrator.fleet.fixes.model import CheckTool, tool_from_json


@dataclass(frozen=True, slots=True)
class MeasurementSpec:
    """What to measure."""

    output: Path
    """The file to write the report to."""
    cache: Path
    """The folder where tools keep their caches."""
    tools: tuple[CheckTool, ...] | None = None
    """The tools to run; None: find them."""
    commands: tuple[str, ...] = ()
    """Commands to run instead of the tools found in the project's files."""
    ci: tuple[str, ...] = ()
    """The commands of the configured checks, which are always run."""
    timeout: float = 1800.0
    """Seconds that a tool may take."""
    before: Path | None = None
    """The report of the base, for a verification."""
    targets: tuple[TargetFailure, ...] = ()
    """The failures that must be gone, for a verification."""


def spec_to_json(spec: MeasurementSpec) -> dict[str, Any]:
    """Return a spec as JSON data."""
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


def spec_from_json(data: Mapping[str, Any]) -> MeasurementSpec:
    """Return a spec from the data that `spec_to_json` made."""
    return MeasurementSpec(
        output=Path(data["output"]),
        cache=Path(data["cache"]),
        tools=None if data["tools"] is None else tuple(tool_from_json(tool) for tool in data["tools"]),
        commands=tuple(data["commands"]),
        ci=tuple(data["ci"]),
        timeout=float(data["timeout"]),
        before=Path(data["before"]) if data["before"] else None,
        targets=tuple(TargetFailure(**target) for target in data["targets"]),
    )
