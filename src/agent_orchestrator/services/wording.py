"""What rules say: the variables of their templates, and plain words where a rule has no text of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from agent_orchestrator.flow.authors import WRITES, Said, Words, free, held
from agent_orchestrator.flow.episodes import open_comment
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import Comment, PullRequest
from agent_orchestrator.flow.rules import TEMPLATE_VARIABLES, Rule
from agent_orchestrator.services.view import Views

MOST = 12_000
"""Characters of errors or comments that a message carries."""


class Wording:
    """Text from outside is data here: values of variables, fenced and attributed, never part of a template."""

    def __init__(self, views: Views, trusted: Callable[[str], Collection[str]]) -> None:
        self.views = views
        self.trusted = trusted
        """Project → authors whose words need no person's."""

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
            "comments": comments(pr, self._said(facts, rule.trigger), rule.trigger),
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

    def hold(self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any]) -> str:
        """Why what the rule sends waits for a person's word: it has words of strangers in it. Nothing: it need not."""
        told = args.get("event") or {}
        words: list[Said] = [*self._said(facts, rule.trigger)]
        if told.get("body"):
            words.append(Words(str(told.get("author", "person")), str(told.get("writeAccess", WRITES))))
        return held(words, self.trusted(facts.project))

    def _said(self, facts: SessionFacts, trigger: str) -> list[Comment]:
        """The comments that a message is about: a stranger's brings all, and anybody else's brings no stranger's along."""
        newest = open_comment(facts, facts.pr) if facts.pr and trigger == "review-comment" else None
        if newest is None or facts.pr is None:
            return []
        trusted = self.trusted(facts.project)
        here = [one for one in facts.pr.comments if not one.by_agent and one.head == newest.head]
        return [one for one in here if free(one, trusted) or not free(newest, trusted)]

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


def comments(pr: PullRequest | None, said: Sequence[Comment], trigger: str) -> str:
    """What reviewers said, with file, line and author."""
    if pr is None:
        return ""
    if trigger == "review-comment":
        return "\n\n".join(_said(comment) for comment in said)[:MOST]
    review = next((one for one in reversed(pr.judgements) if one.verdict == "changes_requested"), None)
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
