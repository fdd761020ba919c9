"""The text of the task of an agent that is to fix one cause."""

from __future__ import annotations

from collections.abc import Sequence

from agent_orchestrator.changes.checks.summary import strip_escapes
from agent_orchestrator.fleet.fixes.causes import ALL_FAILURES_KEY, FailureGroup
from agent_orchestrator.fleet.fixes.model import CheckTool, ToolFailure, shorten_middle

MAX_LISTED_FAILURES = 40
MAX_DETAILED_FAILURES = 8
MAX_DETAIL_LENGTH = 1500

RULES = """\
What counts as fixed is measured, in a clean checkout of your commit, by the same commands:
- every failure above is gone, and nothing fails that did not fail before;
- the tests above are there, run and pass. Do not delete, skip or weaken a test, unless the test itself is wrong: then correct it, and \
say in your summary why it was wrong;
- nothing is silenced: no new `# noqa`, `# type: ignore`, `eslint-disable`, `@ts-ignore`, `#[allow]`, skip or xfail marks, and no change \
to the tools' settings.
Fix the cause, not each symptom, and change nothing unrelated: other agents work on other failures of this \
repository at the same time. Where whole commands are to pass before you finish, that means your failures: the others are theirs."""


def session_title(group: FailureGroup) -> str:
    """Return the session's title."""
    return f"Fix: {group.title}"


def task_text(group: FailureGroup, tools: Sequence[CheckTool], commit: str, base: str) -> str:
    """Return the text of the task: the failures, how to reproduce them, and what counts as fixed."""
    count = len(group.failures)
    subject = "this failure" if count == 1 else f"these {count} failures, which likely have one cause"
    subject = "everything that fails" if group.key == ALL_FAILURES_KEY else subject
    lines = [f"Fix {subject}: {group.title}", "", f"Measured on {base} at {commit[:12]}.", ""]
    for number, failure in enumerate(group.failures[:MAX_LISTED_FAILURES], 1):
        lines += _failure_lines(number, failure)
    if count > MAX_LISTED_FAILURES:
        lines.append(f"… and {count - MAX_LISTED_FAILURES} more.")
    lines += ["", "Reproduce them by:"]
    matching_tools = [tool for tool in tools if tool.name in group.tools]
    lines += [f"    {f'cd {tool.folder} && ' if tool.folder else ''}{tool.command}" for tool in matching_tools or tools]
    return "\n".join([*lines, "", RULES])


def _failure_lines(number: int, failure: ToolFailure) -> list[str]:
    """Return the lines that describe one failure."""
    position = f" ({failure.file}:{failure.line})" if failure.file and failure.line else ""
    identity = f"{failure.rule} {failure.file}" if failure.rule and not failure.test else failure.id
    lines = [f"{number}. {failure.tool}: {' '.join(identity.split())}{position}"]
    detail = strip_escapes(failure.detail).strip("\n")
    if number > MAX_DETAILED_FAILURES or not detail:
        detail = failure.message
    return [*lines, *(f"   > {line}".rstrip() for line in shorten_middle(detail, MAX_DETAIL_LENGTH).split("\n"))]
