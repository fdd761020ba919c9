"""Templates and conditions of the configuration: checked when a file is loaded, never trusted when they run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jinja2 import StrictUndefined, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_orchestrator.config.problems import did_you_mean

AGENT_VARIABLES = (
    "prompt",
    "taskFile",
    "workspacePath",
    "branch",
    "base",
    "session",
    "project",
    "model",
    "permissions",
    "mode",
    "conversation",
)
"""What an agent's `command` and `resume` may speak of."""

BRANCH_VARIABLES = ("name", "issue", "project", "prefix")
"""What `branchPattern` may speak of."""


def environment() -> ImmutableSandboxedEnvironment:
    """The one environment in which templates and conditions are checked and run."""
    # Not optimised: folding constants would run `{{ 9**9**9 }}` while a file is being checked.
    made = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False, optimized=False)
    made.globals.clear()
    made.globals["range"] = range
    return made


_ENVIRONMENT = environment()
_LONGEST = 20_000


def check_template(text: str, variables: Iterable[str]) -> None:
    """Raise `ValueError` for wrong syntax or an unknown variable."""
    _check(text, text, variables, "template")


def check_condition(text: str, variables: Iterable[str]) -> None:
    """Raise `ValueError` if the text is not one expression over the variables."""
    try:
        _ENVIRONMENT.compile_expression(text[:_LONGEST])
    except TemplateError as error:
        raise ValueError(f"not a valid condition: {_one_line(error)}") from None
    except (RecursionError, SyntaxError, MemoryError, ValueError, OverflowError):
        raise ValueError("not a valid condition: too deeply nested") from None
    _check(text, "{{" + text + "}}", variables, "condition")


def _check(text: str, source: str, variables: Iterable[str], kind: str) -> None:
    if len(text) > _LONGEST:
        raise ValueError(f"the {kind} is longer than {_LONGEST} characters")
    known = set(variables)
    try:
        tree = _ENVIRONMENT.parse(source)
        used = meta.find_undeclared_variables(tree) - set(_ENVIRONMENT.globals)
        _ENVIRONMENT.compile(source)
    except TemplateError as error:
        raise ValueError(f"not a valid {kind}: {_one_line(error)}") from None
    except (RecursionError, SyntaxError, MemoryError, ValueError, OverflowError):
        raise ValueError(f"not a valid {kind}: too deeply nested") from None
    for name in sorted(used - known):
        remedy = did_you_mean(name, known)
        raise ValueError(f'unknown variable "{name}" in the {kind}' + (f"; {remedy}" if remedy else ""))


def _one_line(error: TemplateError) -> str:
    return re.sub(r"\s+", " ", error.message or "syntax error")[:160]
