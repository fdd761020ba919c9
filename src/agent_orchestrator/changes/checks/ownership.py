"""Which failures of the base branch a task is about: `owned_failures(task, failures, base)`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WHAT = r"(?:tests?|test suite|suite|checks?|ci|builds?|pipeline|lint(?:er|ing)?|type ?checks?)"
_WRONG = r"(?:failing|failed|fails|broken|red)"
_END = r"(?=\s*(?:$|[.,;:!?)\n]|on\b|in\b|so\b|and\b|again\b|that\b|which\b|of\b|for\b))"
_LONGEST_TASK = 20_000
_SHORTEST_NAME = 4


def owned_failures(task: str, failures: Iterable[str], base: str) -> tuple[str, ...]:
    """Return the failures of the base branch that a task names, or all of them if it is to make the branch green."""
    text = task[:_LONGEST_TASK]
    names = tuple(failures)
    if _is_to_make_green(text, base):
        return names
    return tuple(name for name in names if any(_mentions(text, form) for form in _forms(name)))


def _is_to_make_green(task: str, base: str) -> bool:
    where = rf"(?:{_WHAT}|{re.escape(base)}|base|branch)"
    patterns = (
        rf"\b(?:make|get|turn|bring)\b[^.\n]{{0,60}}\b{where}\b[^.\n]{{0,30}}\b(?:green|pass|passing|work)\b",
        rf"\b(?:fix|repair|resolve|solve)\b[^.\n]{{0,40}}\b{_WRONG}\s+(?:\w+\s+)?{_WHAT}\b",
        rf"\b(?:fix|repair)\s+(?:the\s+|our\s+|all\s+)*{where}{_END}",
        rf"\b{where}\s+(?:is|are)\s+{_WRONG}\b",
    )
    return any(re.search(pattern, task, re.IGNORECASE) for pattern in patterns)


def _forms(name: str) -> Iterable[str]:
    """The ways to name a failure: whole, without its parameters, its last part, the file that it is in."""
    plain = re.sub(r"\[[^\]]*\]$", "", name)
    yield name
    yield plain
    parts = [part.strip() for part in re.split(r"::| > | › |\s+>\s+", plain) if part.strip()]
    if len(parts) > 1:
        last = parts[-1]
        yield last
        yield last.rpartition(".")[2]
    elif "." in plain and " " not in plain:
        yield plain.rpartition(".")[2]  # unittest: module.Class.test_name
    elif file := re.match(r"([\w./-]+\.\w+)(?::| |$)", plain):
        yield file[1]


def _mentions(task: str, form: str) -> bool:
    """Whether a text has these words, as a whole and not as part of another name."""
    if len(form) < _SHORTEST_NAME or form.lower() in ("test", "tests"):
        return False
    return re.search(rf"(?<![\w/]){re.escape(form)}(?!\w)", task, re.IGNORECASE) is not None
