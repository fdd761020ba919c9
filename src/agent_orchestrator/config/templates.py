"""What the configuration's templates may speak of, and their check when a file is loaded."""

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
"""What an agent's `command` and `resume` may speak of."""

BRANCH_VARIABLES = ("name", "issue", "project", "prefix")
"""What `branchPattern` may speak of."""


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
        # Python's own compiler, to which a template comes in the end, has bounds too.
        raise ValueError("nested too deeply") from None
