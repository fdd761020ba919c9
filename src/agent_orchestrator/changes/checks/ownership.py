"""Find the failures of the base branch that a task is about: `owned_failures(task, failures, base)`. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_orchestrator.core.facts import SessionFacts

_CHECK_NOUNS = r"(?:tests?|test suite|suite|checks?|ci|builds?|pipeline|lint(?:er|ing)?|type ?checks?)"
_FAILING_WORDS = r"(?:failing|failed|fails|broken|red)"
_CLAUSE_END = r"(?=\s*(?:$|[.,;:!?)\n]|on\b|in\b|so\b|and\b|again\b|that\b|which\b|of\b|for\b))"
_MAX_TASK_LENGTH = 20_000
_MIN_NAME_LENGTH = 4


def owned_failures(task: str, failures: Iterable[str], base: str) -> tuple[str, ...]:
    """Return the failures of the base branch that a task names, or all of them if the task is to make the branch green."""
    text = task[:_MAX_TASK_LENGTH]
    names = tuple(failures)
    if _is_to_make_green(text, base):
        return names
    return tuple(name for name in names if any(_mentions(text, form) for form in _name_forms(name)))


def _is_to_make_green(task: str, base: str) -> bool:
    """Return whether a task is to make the checks of the base branch pass."""
    subject = rf"(?:{_CHECK_NOUNS}|{re.escape(base)}|base|branch)"
    patterns = (
        rf"\b(?:make|get|turn|bring)\b[^.\n]{{0,60}}\b{subject}\b[^.\n]{{0,30}}\b(?:green|pass|passing|work)\b",
        rf"\b(?:fix|repair|resolve|solve)\b[^.\n]{{0,40}}\b{_FAILING_WORDS}\s+(?:\w+\s+)?{_CHECK_NOUNS}\b",
        rf"\b(?:fix|repair)\s+(?:the\s+|our\s+|all\s+)*{subject}{_CLAUSE_END}",
        rf"\b{subject}\s+(?:is|are)\s+{_FAILING_WORDS}\b",
    )
    return any(re.search(pattern, task, re.IGNORECASE) for pattern in patterns)


def _name_forms(name: str) -> Iterable[str]:
    """Yield the ways to name a failure: whole, without its parameters, its last part, the file that it is in."""
    base_name = re.sub(r"\[[^\]]*\]$", "", name)
    yield name
    yield base_name
    parts = [part.strip() for part in re.split(r"::| > | › |\s+>\s+", base_name) if part.strip()]
    if len(parts) > 1:
        last = parts[-1]
        yield last
        yield last.rpartition(".")[2]
    elif "." in base_name and " " not in base_name:
        yield base_name.rpartition(".")[2]  # unittest: module.Class.test_name
    elif file := re.match(r"([\w./-]+\.\w+)(?::| |$)", base_name):
        yield file[1]


def _mentions(task: str, form: str) -> bool:
    """Return whether a text contains this name as a whole, not as a part of another name; very short names do not count."""
    if len(form) < _MIN_NAME_LENGTH or form.lower() in ("test", "tests"):
        return False
    return re.search(rf"(?<![\w/]){re.escape(form)}(?!\w)", task, re.IGNORECASE) is not None


def task_text(facts: SessionFacts) -> str:
    """Return a session's task: its title, and its prompt with the issue's text."""
    return f"{facts.spec.title}\n{facts.spec.prompt}"
