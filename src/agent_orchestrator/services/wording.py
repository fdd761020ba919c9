"""What rules say: the variables of their templates, and plain words where a rule has no text of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_orchestrator.flow.episodes import open_comment
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import Comment, PullRequest
from agent_orchestrator.flow.rules import TEMPLATE_VARIABLES, Rule
from agent_orchestrator.services.view import Views

MOST = 12_000
"""Characters of errors or comments that a message carries."""


class Wording:
    """Text from outside is data here: values of variables, fenced and attributed, never part of a template."""

    def __init__(self, views: Views) -> None:
        self.views = views

    def variables(self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that a rule's message or condition may speak of."""
        shown = self.views.session(facts)
        pr, told = facts.pr, dict(args.get("event") or {})
        known = {
            "trigger": rule.trigger,
            "session": shown,
            "project": facts.project,
            "task": facts.spec.prompt,
            "title": facts.spec.title,
            "branch": facts.branch,
            "base": facts.base,
            "agent": facts.spec.agent,
            "issue": {"id": facts.spec.issue, "title": facts.spec.title, "labels": list(facts.spec.labels)},
            "pr": shown["pr"] or {},
            "checks": (shown["pr"] or {}).get("checks", []),
            "errors": errors(facts, pr),
            "comments": comments(facts, pr, rule.trigger),
            "files": "\n".join(f"- {name}" for name in pr.conflicts) if pr else "",
            "labels": list(facts.spec.labels),
            "label": told.get("label", ""),
            "comment": _fenced(str(told.get("body", ""))),
            "author": told.get("author", ""),
            "event": told,
            "question": facts.question,
            "reason": shown["why"],
            "exit_code": shown["exitCode"],
            "usage": shown["usage"],
            "summary": facts.done or "",
            "attempt": args.get("attempt", 1),
            "retries": rule.retries,
        }
        return {name: known.get(name, "") for name in TEMPLATE_VARIABLES}

    def plain(self, facts: SessionFacts, rule: Rule) -> str:
        """What happened, in one line."""
        return (
            self.views.status(facts).why
            if rule.trigger.startswith("agent-")
            else f"{rule.trigger}: {self.views.status(facts).why}"
        )


def errors(facts: SessionFacts, pr: PullRequest | None) -> str:
    """The failing checks with the relevant part of their logs."""
    if pr is None:
        return ""
    parts = [
        f"{run.name} ({run.state}):\n{_fenced(run.summary)}\nwhole log: {run.log}" for run in pr.failing(facts.head)
    ]
    return "\n\n".join(parts)[:MOST]


def comments(facts: SessionFacts, pr: PullRequest | None, trigger: str) -> str:
    """What reviewers said, with file, line and author."""
    if pr is None:
        return ""
    if trigger == "review-comment":
        newest = open_comment(facts, pr)
        chosen = [comment for comment in pr.comments if newest and not comment.by_agent and comment.head == newest.head]
        return "\n\n".join(_said(comment) for comment in chosen)[:MOST]
    review = next((one for one in reversed(pr.reviews) if one.verdict == "changes_requested"), None)
    if review is None:
        return ""
    parts = [f"{review.author}:\n{_fenced(review.body)}"] if review.body else []
    parts += [_said(comment) for comment in pr.comments if comment.review == review.id]
    return "\n\n".join(parts)[:MOST]


def _said(comment: Comment) -> str:
    where = (
        f"{comment.path}:{comment.line} "
        if comment.path and comment.line
        else f"{comment.path} "
        if comment.path
        else ""
    )
    return f"{where}{comment.author} (comment {comment.id}):\n{_fenced(comment.body)}"


def _fenced(text: str) -> str:
    """As a quotation: whatever it says, it is somebody's words."""
    return "\n".join(f"> {line}" for line in text.splitlines())
