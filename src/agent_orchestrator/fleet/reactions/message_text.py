"""What rules say: the variables of their templates, and plain words where a rule has no text of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from shlex import quote
from typing import Any

from agent_orchestrator.core.authors import WRITES, Said, Words, free, held, kind_of
from agent_orchestrator.core.episodes import open_comment, stands_since
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Comment, PullRequest, Review
from agent_orchestrator.core.reactions import limited_until
from agent_orchestrator.core.rules import RESTART_TEXTS, TEMPLATE_VARIABLES, Rule
from agent_orchestrator.fleet.reactions.attachments import Material
from agent_orchestrator.protocols.text import clean_text, file_name, one_line
from agent_orchestrator.sessions.session_view import Views

MOST = 12_000
"""Characters of errors or comments that a message carries."""
LEAST = 200
"""Characters of a failing check's log that it carries at least."""
TOLD = MOST // LEAST
"""Failing checks that it tells of."""


class Wording:
    """Text from outside is data here: values of variables, fenced and attributed, never part of a template."""

    def __init__(self, views: Views, trusted: Callable[[str], Collection[str]]) -> None:
        self.views = views
        self.trusted = trusted
        """Project → authors whose words need no person's."""

    def variables(
        self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any], material: Material | None = None
    ) -> dict[str, Any]:
        """Everything that a rule's message or condition may speak of."""
        shown = self.views.session(facts)
        pr, told, given = facts.pr, dict(args.get("event") or {}), material or Material()
        author, by = self._author(facts, rule.trigger, args)
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
            "errors": errors(facts, pr, given.logs),
            "comments": comments(
                pr, self._said(facts, rule.trigger, args), rule.trigger, given.hunks, self.trusted(facts.project)
            ),
            "files": _files(pr, told),
            "ours": given.ours,
            "theirs": given.theirs,
            "update": _update(facts),
            "other": told.get("other", ""),
            "labels": list(facts.spec.labels),
            "label": told.get("label", ""),
            "comment": _fenced(str(told.get("body", ""))),
            "author": author,
            "by": by,
            "event": told,
            "question": facts.question,
            "reason": told.get("reason") or shown["why"],
            "exit_code": shown["exitCode"],
            "resets_at": rfc3339(limited_until(facts)) if facts.limited else "",
            "usage": shown["usage"],
            "budget": told.get("budget", ""),
            "summary": told.get("summary") or facts.done or "",
            "attempt": args.get("attempt", 1),
            "retries": rule.retries,
        }
        return {name: known.get(name, "") for name in TEMPLATE_VARIABLES}

    def _author(self, facts: SessionFacts, trigger: str, args: Mapping[str, Any]) -> tuple[str, str]:
        """Who did what triggered it, and what he is."""
        told = args.get("event") or {}
        if told.get("author") or told.get("body"):  # whoever uses the command line here is not named
            author = str(told.get("author") or "person")
            return author, str(told.get("kind") or kind_of(author))
        said: Review | Comment | None = None
        if facts.pr and trigger == "changes-requested":
            said = last_request(facts.pr)
        elif facts.pr and trigger == "review-comment":
            said = self._newest(facts, args)
        return (said.author, said.kind) if said else ("", "")

    def hold(self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any]) -> str:
        """Why what the rule sends waits for a person's word: it has words of strangers in it. Nothing: it need not."""
        told = args.get("event") or {}
        words: list[Said] = [*self._said(facts, rule.trigger, args)]
        words.append(Words(str(told.get("author", "person")), str(told.get("writeAccess", WRITES))))
        return held(words, self.trusted(facts.project))

    def _said(self, facts: SessionFacts, trigger: str, args: Mapping[str, Any]) -> list[Comment]:
        """The comments that a message is about: a stranger's brings all, and anybody else's brings no stranger's along."""
        newest = self._newest(facts, args) if trigger == "review-comment" else None
        if newest is None or facts.pr is None:
            return []
        trusted = self.trusted(facts.project)
        until = facts.pr.comments.index(newest) + 1
        here = [
            one
            for one in facts.pr.comments[:until]
            if not one.by_agent and one.stands_at == newest.stands_at and not one.resolved
        ]
        return [one for one in here if free(one, trusted) or not free(newest, trusted)]

    def _newest(self, facts: SessionFacts, args: Mapping[str, Any]) -> Comment | None:
        """The comment that is reacted to; none is named: the one that there would be to react to."""
        what = str(args.get("occurrence"))
        named = stands_since(facts, what) or self.overtaken(facts, what)
        return named or (open_comment(facts, facts.pr) if facts.pr else None)

    def overtaken(self, facts: SessionFacts, comment: str) -> Comment | None:
        """A stranger's comment that only words of others followed, which do not bring it along: it is to wait for a person all the same."""
        trusted = self.trusted(facts.project)
        return stands_since(facts, comment, lambda one: free(one, trusted))

    def plain(self, facts: SessionFacts, rule: Rule, told: Mapping[str, Any] | None = None) -> str:
        """What happened, in one line; with a summary where the rule wants one."""
        why = self.views.status(facts).why
        if rule.trigger == "budget-exceeded" and told:
            text = f"{told.get('spent')} spent of {told.get('budget')} a {told.get('scope')}"
        elif rule.trigger == "all-complete":
            text = f"every session of {facts.project} is done"
        elif told and told.get("files"):
            with_whom = f" with {told['other']}" if told.get("other") else ""
            text = f"{rule.trigger}{with_whom}: {', '.join(map(str, told['files'][:5]))}"
        else:
            text = why if rule.trigger.startswith("agent-") else f"{rule.trigger}: {why}"
        summary = str((told or {}).get("summary") or facts.done or "")
        return f"{text}\n{summary}" if rule.include_summary and summary else text

    def restart_text(self, rule: Rule) -> str:
        """What an agent is told that was started again."""
        known = RESTART_TEXTS.get(rule.trigger)
        return rule.message or known or "You were started again. Go on where you left off."


def errors(facts: SessionFacts, pr: PullRequest | None, logs: Mapping[str, str] | None = None) -> str:
    """The failing checks with the relevant part of their logs, each with a fair share of the room."""
    failing = pr.failing(facts.head) if pr else []
    room = max(LEAST, MOST // max(1, len(failing)) - 300)
    whole = logs or {}
    parts = [
        f"{one_line(run.name)} ({run.state}):\n{_fenced(_cut(run.summary, room))}\n"
        f"whole log: {whole.get(run.name) or run.log}"
        for run in failing[:TOLD]
    ]
    if len(failing) > TOLD:
        parts.append(f"and {len(failing) - TOLD} more: ao checks {facts.id}")
    return "\n\n".join(parts)


def comments(
    pr: PullRequest | None,
    said: Sequence[Comment],
    trigger: str,
    hunks: Mapping[str, str] | None = None,
    trusted: Collection[str] = (),
) -> str:
    """What reviewers said, with file, line, the lines around it, author and thread; no thread brings a stranger's words along."""
    if pr is None:
        return ""
    around = hunks or {}
    if trigger == "review-comment":
        return _cut("\n\n".join(_first(_said(pr, comment, around, trusted) for comment in said)), MOST)
    review = last_request(pr)
    if review is None:
        return ""
    opening = [f"{_who(review)}:\n{_fenced(review.body)}"] if review.body else []
    below = (
        _said(pr, comment, around, trusted)
        for comment in pr.comments
        if comment.review == review.id and not comment.resolved
    )
    return _cut("\n\n".join(_first(chain(opening, below))), MOST)


def last_request(pr: PullRequest) -> Review | None:
    """The last review that asks for changes."""
    return next((one for one in reversed(pr.judgements) if one.verdict == "changes_requested"), None)


def _said(pr: PullRequest, comment: Comment, hunks: Mapping[str, str], trusted: Collection[str]) -> str:
    where = (
        f"{file_name(comment.path)}:{comment.line} "
        if comment.path and comment.line
        else f"{file_name(comment.path)} "
        if comment.path
        else ""
    )
    return "\n".join(_first(_lines(pr, comment, where, hunks, trusted)))


def _lines(
    pr: PullRequest, comment: Comment, where: str, hunks: Mapping[str, str], trusted: Collection[str]
) -> Iterator[str]:
    yield f"{where}{_who(comment)} (comment {comment.id}):"
    if hunk := hunks.get(comment.id):
        yield from (f"| {line}" for line in hunk.splitlines())
    if earlier := _thread(pr, comment):
        yield "in answer to:"
        every = not free(comment, trusted)  # a person reads all of it before the agent does
        for one in earlier:
            fits = every or free(one, trusted)
            yield _fenced(f"{_who(one)}: {one.body}", "> > ") if fits else f"(left out: {held([one], trusted)})"
    yield _fenced(comment.body)


def _first(parts: Iterable[str]) -> Iterator[str]:
    """Those for which there is room, and one more: what would be cut off anyway is not put into words."""
    size = 0
    for part in parts:
        yield part
        size += len(part)
        if size > MOST:
            return


def _thread(pr: PullRequest, comment: Comment) -> list[Comment]:
    """What was said before in the same thread."""
    if comment.thread is None:
        return []
    return [
        one
        for one in pr.comments
        if one.id != comment.id and one.at <= comment.at and comment.thread in (one.id, one.thread)
    ]


def _who(said: Comment | Review) -> str:
    """An author; what is no person is told apart."""
    if isinstance(said, Comment) and said.by_agent:
        return f"{one_line(said.author)} (you)"
    return one_line(said.author) if said.kind == "person" else f"{one_line(said.author)} ({said.kind})"


def _update(facts: SessionFacts) -> str:
    """The command that begins to bring a change up to date; a clone has to fetch the base first, from where it lands."""
    fetch, base = "", quote(facts.base)
    if facts.place and not facts.place.shared:
        fetch, base = f"git fetch {'origin' if facts.remote else quote(facts.spec.repo)} {base} && ", "FETCH_HEAD"
    if facts.pr and facts.pr.seen_by_person:
        return f"{fetch}git merge {base}"
    return f"{fetch}git rebase --onto {base} {facts.below}" if facts.below else f"{fetch}git rebase {base}"


def _files(pr: PullRequest | None, told: Mapping[str, Any]) -> str:
    names = told.get("files") or (pr.conflicts if pr else ())
    return "\n".join(f"- {file_name(str(name))}" for name in names)


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[:room].rpartition(chr(10))[0] or text[:room]}\n… (cut)"


def _fenced(text: str, mark: str = "> ") -> str:
    """As a quotation: whatever it says, it is somebody's words."""
    return "\n".join(f"{mark}{line}" for line in clean_text(text).splitlines())
