"""The variables that the configuration's templates may use, and the check of templates when a file is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent_orchestrator.base.text import templates
from agent_orchestrator.errors import UsageError

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
"""The variables of an agent's `command` and `resume`."""

BRANCH_VARIABLES = ("name", "issue", "project", "prefix")
"""The variables of `branchPattern`."""


def check_template(text: str, variables: Iterable[str]) -> None:
    """Raise `ValueError` for wrong syntax or an unknown variable."""
    _check(templates.check, text, variables)


def check_condition(text: str, variables: Iterable[str]) -> None:
    """Raise `ValueError` if the text is not one expression over the variables."""
    _check(templates.check_condition, text, variables)


def _check(check: Callable[[str, Iterable[str]], None], text: str, variables: Iterable[str]) -> None:
    try:
        check(text, variables)
    except UsageError as error:
        raise ValueError(f"{error.text}; {error.remedy}" if error.remedy else error.text) from None
    except (RecursionError, SyntaxError, MemoryError, OverflowError):
        # Python's compiler, which a template is passed to in the end, has limits too.
        raise ValueError("nested too deeply") from None
