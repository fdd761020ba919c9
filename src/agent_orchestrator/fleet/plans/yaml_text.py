"""Write a plan as YAML for a person's editor, and read the edited text."""

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


def plan_to_yaml(plan: Plan, profiles: Iterable[str]) -> str:
    """Return a plan as YAML, with a description of its keys."""
    profile_names = ", ".join(profiles)
    head = _HEAD.format(
        plan=plan.id,
        project=plan.project,
        efforts=", ".join(EFFORTS),
        profiles=f"who is to take it: {profile_names}" if profile_names else "none is configured here",
    )
    notes = "".join(f"# Note: {note}\n" for note in plan.notes)
    data = {"goal": _yaml_string(plan.goal), "tasks": [_task_data(task) for task in plan.tasks]}
    stream = io.StringIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 120
    yaml.dump(data, stream)
    return f"{head}{notes}\n{stream.getvalue()}"


def _task_data(task: PlannedTask) -> dict[str, Any]:
    """Return the data of a task, without empty values."""
    non_empty = {
        key: value for key, value in task.to_json().items() if value or key in ("title", "dependencies", "effort")
    }
    return {key: _yaml_string(value) if isinstance(value, str) else value for key, value in non_empty.items()}


def _yaml_string(text: str) -> str:
    """Return a text that is written as a block if it has several lines."""
    return LiteralScalarString(f"{text}\n") if "\n" in text else text


def tasks_from_yaml(text: str) -> tuple[str | None, Any]:
    """Return the goal, or None if there is none, and the unchecked tasks. Raises `UsageError` with the line that is wrong."""
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        position = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = " ".join(str(error.problem or error.context).split())
        raise UsageError(f"this is no YAML{position}: {problem}", "correct it") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"this is no YAML: {' '.join(str(error).split())[:200]}", "correct it") from None
    if not isinstance(data, dict):
        raise UsageError("the plan is no map with `goal` and `tasks`", "begin it with `tasks:`")
    if unknown_names := sorted(str(key) for key in data if key not in ("goal", "tasks")):
        raise UsageError(f"there is no key {unknown_names[0]}", "a plan has `goal` and `tasks`")
    names = set(PlannedTask.__dataclass_fields__)
    for task_number, task in enumerate(data.get("tasks") or (), 1):
        unknown_keys = sorted(str(key) for key in task if key not in names) if isinstance(task, dict) else []
        if unknown_keys:
            task_keys = ", ".join(PlannedTask.__dataclass_fields__)
            raise UsageError(f"task {task_number}: there is no key {unknown_keys[0]}", f"a task has {task_keys}")
    goal = data.get("goal")
    return (str(goal).strip() if goal is not None else None), data.get("tasks")
