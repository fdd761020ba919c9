"""A plan as YAML for a person's editor, and what he made of it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarstring import LiteralScalarString

from agent_orchestrator.core.plans import EFFORTS, Plan, PlannedTask
from agent_orchestrator.errors import UsageError

_HEAD = """\
# {plan} of {project}. Save and close to take your changes; leave it as it is to take none.
# A task has
#   id            short; other tasks name it in `dependencies`
#   title         one line
#   description   all that the agent must know: it sees nothing else of the plan
#   acceptance    what must hold when it is done
#   dependencies  ids of tasks that must have landed before
#   effort        {efforts}
#   labels        as the profiles take work by
#   files         that it is expected to change; glob patterns too
#   profile       {profiles}
#   priority      higher goes first; 0 is usual
#   issue         the number of the open issue that it is; absent: an issue is made
"""


def as_yaml(plan: Plan, profiles: Iterable[str]) -> str:
    """The text that is edited."""
    named = ", ".join(profiles)
    head = _HEAD.format(
        plan=plan.id,
        project=plan.project,
        efforts=", ".join(EFFORTS),
        profiles=f"who is to take it: {named}" if named else "none is configured here",
    )
    notes = "".join(f"# Note: {note}\n" for note in plan.notes)
    data = {"goal": _text(plan.goal), "tasks": [_task(task) for task in plan.tasks]}
    out = io.StringIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 120
    yaml.dump(data, out)
    return f"{head}{notes}\n{out.getvalue()}"


def _task(task: PlannedTask) -> dict[str, Any]:
    shown = {key: value for key, value in task.data().items() if value or key in ("title", "dependencies", "effort")}
    return {key: _text(value) if isinstance(value, str) else value for key, value in shown.items()}


def _text(text: str) -> str:
    return LiteralScalarString(f"{text}\n") if "\n" in text else text


def from_yaml(text: str) -> tuple[str | None, Any]:
    """Goal, if there is one, and tasks, unchecked. Raises `UsageError` with the line that is wrong."""
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        what = " ".join(str(error.problem or error.context).split())
        raise UsageError(f"this is no YAML{where}: {what}", "correct it") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"this is no YAML: {' '.join(str(error).split())[:200]}", "correct it") from None
    if not isinstance(data, dict):
        raise UsageError("the plan is no map with `goal` and `tasks`", "begin it with `tasks:`")
    if unknown := sorted(str(key) for key in data if key not in ("goal", "tasks")):
        raise UsageError(f"there is no key {unknown[0]}", "a plan has `goal` and `tasks`")
    names = set(PlannedTask.__dataclass_fields__)
    for place, task in enumerate(data.get("tasks") or (), 1):
        extra = sorted(str(key) for key in task if key not in names) if isinstance(task, dict) else []
        if extra:
            known = ", ".join(PlannedTask.__dataclass_fields__)
            raise UsageError(f"task {place}: there is no key {extra[0]}", f"a task has {known}")
    goal = data.get("goal")
    return (str(goal).strip() if goal is not None else None), data.get("tasks")
