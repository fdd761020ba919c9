"""What rules send to agents and people: the variables of message templates, a plain description if a rule has no
message, and attachments (log files of failing checks, the lines around a comment, the commits of both sides of a conflict).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.checks.summary import strip_escapes
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core.authors import (
    HAS_WRITE_ACCESS,
    AuthoredText,
    TextAuthor,
    approval_reason,
    author_kind,
    is_trusted_text,
)
from agent_orchestrator.core.episodes import find_open_comment, newest_open_comment
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import CheckRun, Comment, PullRequest, Review
from agent_orchestrator.core.reactions import limited_until
from agent_orchestrator.core.rules.default_messages import RESTART_TEXTS
from agent_orchestrator.core.rules.model import TEMPLATE_VARIABLES, Rule
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.text import clean_text, one_line, quote_file_name
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.sessions.session_view import SessionViews

MAX_LENGTH = 12_000
"""The most characters of errors or comments that a message carries."""
MIN_LOG_LENGTH = 200
"""The fewest characters of a failing check's log that a message carries."""
MAX_CHECKS = MAX_LENGTH // MIN_LOG_LENGTH
"""The most failing checks that a message lists."""
MAX_COMMITS = 8
MAX_HUNKS = 40
CONTEXT_LINES = 4
"""Lines shown before and after the line that a comment is about."""
MAX_LOG_BYTES = 16 << 20

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Attachments:
    """The attachments of one message."""

    logs: Mapping[str, str] = field(default_factory=dict)
    """Check → the file with its whole output, without colours."""
    hunks: Mapping[str, str] = field(default_factory=dict)
    """Comment → the lines around the line that it is about."""
    ours: str = ""
    theirs: str = ""


class AttachmentCollector:
    """Collects the attachments of messages to agents."""

    def __init__(self, core: Core) -> None:
        self.flow = core.flow
        self.home = core.home
        self.host = core.host

    async def collect(self, facts: SessionFacts, trigger: str, *, keep: bool = True) -> Attachments:
        """Return the attachments that a message about this trigger needs; `keep` is whether logs are copied into the
        session's private folder.
        """
        pr = facts.pr
        if pr is None:
            return Attachments()
        ours, theirs = await self._commits_of_both_sides(facts, pr) if pr.conflicting_files else ("", "")
        return Attachments(
            logs={run.name: await self._log(facts, run, keep=keep) for run in pr.failing_checks(facts.head)},
            hunks=await self._hunks_by_comment(facts, pr) if trigger in ("changes-requested", "review-comment") else {},
            ours=ours,
            theirs=theirs,
        )

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def _log(self, facts: SessionFacts, run: CheckRun, *, keep: bool) -> str:
        source = Path(run.log) if run.log else None
        if source is None or not keep or not source.is_file():
            return run.log
        copy = self.home.session(facts.id) / "checks" / f"{_file_of(run.name)}-{run.head[:8]}.log"
        try:
            await asyncio.to_thread(_copy_without_colours, source, copy)
        except OSError:
            return run.log
        return str(copy)

    # -- comments ------------------------------------------------------------------------------------------------------

    async def _hunks_by_comment(self, facts: SessionFacts, pr: PullRequest) -> dict[str, str]:
        hunks: dict[str, str] = {}
        line_comments = [
            candidate for candidate in pr.comments if candidate.path and candidate.line and not candidate.by_agent
        ][-MAX_HUNKS:]
        diffs: dict[tuple[str, str], str] = {}
        for comment in line_comments:
            head, path = comment.head or facts.head or "", comment.path or ""
            if (head, path) not in diffs:
                diffs[head, path] = await self._diff(facts, head, path)
            text = hunk_around(diffs[head, path], comment.line or 0) or await self._file_lines(facts, comment, head)
            if text:
                hunks[comment.id] = clean_text(text)
        return hunks

    async def _diff(self, facts: SessionFacts, head: str, path: str) -> str:
        if facts.workspace is None or not head:
            return ""
        since = f"{facts.workspace.base_commit}...{head}"
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "-U8")
        return await self._git(facts, "diff", *options, "--end-of-options", since, "--", path)

    async def _file_lines(self, facts: SessionFacts, comment: Comment, head: str) -> str:
        """Return the lines of the file itself, for a comment on a line that was not changed."""
        lines = (await self._git(facts, "show", "--end-of-options", f"{head}:{comment.path}")).splitlines()
        line = comment.line or 0
        if not 0 < line <= len(lines):
            return ""
        start = max(1, line - CONTEXT_LINES)
        return "\n".join(
            _row_text(n, " ", lines[n - 1], n == line) for n in range(start, min(len(lines), line + CONTEXT_LINES) + 1)
        )

    # -- conflicts -----------------------------------------------------------------------------------------------------

    async def _commits_of_both_sides(self, facts: SessionFacts, pr: PullRequest) -> tuple[str, str]:
        """Return the titles of the session's and of the base branch's commits that touch the conflicting files."""
        head, base = facts.head or "", facts.base_head or ""
        if not head or not base:
            return "", ""
        merged_sessions = {
            other.pr.merge_commit: other for other in self.flow.sessions.values() if other.pr and other.pr.merge_commit
        }
        ours = await self._commits(facts, f"{base}..{head}", pr.conflicting_files)
        theirs = await self._commits(facts, f"{head}..{base}", pr.conflicting_files)
        session_of = {
            commit: f" ({other.id}: {other.spec.title})" for commit, other in merged_sessions.items() if commit
        }
        return (
            "\n".join(f"- {commit[:8]} {title}" for commit, title in ours),
            "\n".join(f"- {commit[:8]} {title}{session_of.get(commit, '')}" for commit, title in theirs),
        )

    async def _commits(self, facts: SessionFacts, revisions: str, files: Sequence[str]) -> list[tuple[str, str]]:
        options = ("--no-merges", f"--max-count={MAX_COMMITS}", "--format=%H %s")
        output = await self._git(facts, "log", *options, "--end-of-options", revisions, "--", *files)
        parts = (line.partition(" ") for line in clean_text(output).splitlines())
        return [(commit, title[:120]) for commit, _, title in parts]

    async def _git(self, facts: SessionFacts, *argv: str) -> str:
        """Return Git's output, or "" if Git fails: the message is sent all the same."""
        git = Git(self.host, Path(facts.spec.repo))
        try:
            result = await git.run(*argv, env={"GIT_LITERAL_PATHSPECS": "1"}, ok=(0, 128))
        except AoError:
            return ""
        return "" if result.code else result.out.decode(errors="replace")


class MessageText:
    """Builds the text of messages. Text from outside is data: values of variables, quoted and attributed, never part of a template."""

    def __init__(self, views: SessionViews, projects: Projects) -> None:
        self.views = views
        self.projects = projects

    def variables(
        self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any], material: Attachments | None = None
    ) -> dict[str, Any]:
        """Return all variables that a rule's message or condition may use; those without a value are ""."""
        view = self.views.session(facts)
        pr, event, attachments = facts.pr, dict(args.get("event") or {}), material or Attachments()
        author, by = self._author_and_kind(facts, rule.trigger, args)
        values = {
            "trigger": rule.trigger,
            "session": view,
            "project": facts.project,
            "task": facts.spec.prompt,
            "title": facts.spec.title,
            "branch": facts.branch,
            "base": facts.base,
            "agent": facts.spec.agent,
            "issue": {"id": facts.spec.issue, "title": facts.spec.title, "labels": list(facts.spec.labels)},
            "pr": view["pr"] or {},
            "checks": (view["pr"] or {}).get("checks", []),
            "errors": errors_text(facts, pr, attachments.logs),
            "comments": comments_text(
                pr,
                self._comments_of(facts, rule.trigger, args),
                rule.trigger,
                attachments.hunks,
                self.projects.trusted_authors(facts.project),
            ),
            "files": _file_list(pr, event),
            "ours": attachments.ours,
            "theirs": attachments.theirs,
            "update": _update_command(facts),
            "other": event.get("other", ""),
            "labels": list(facts.spec.labels),
            "label": event.get("label", ""),
            "comment": _fenced(str(event.get("body", ""))),
            "author": author,
            "by": by,
            "event": event,
            "question": facts.question,
            "reason": event.get("reason") or view["why"],
            "exit_code": view["exitCode"],
            "resets_at": rfc3339(limited_until(facts)) if facts.limited else "",
            "usage": view["usage"],
            "budget": event.get("budget", ""),
            "summary": event.get("summary") or facts.done_summary or "",
            "attempt": args.get("attempt", 1),
            "retries": rule.retries,
        }
        return {name: values.get(name, "") for name in TEMPLATE_VARIABLES}

    def _author_and_kind(self, facts: SessionFacts, trigger: str, args: Mapping[str, Any]) -> tuple[str, str]:
        """Return who did what triggered the rule, and the kind of that author; two empty strings if unknown."""
        event = args.get("event") or {}
        if event.get("author") or event.get("body"):  # a person at the command line on this machine is not named
            author = str(event.get("author") or "person")
            return author, str(event.get("kind") or author_kind(author))
        comment: Review | Comment | None = None
        if facts.pr and trigger == "changes-requested":
            comment = last_change_request(facts.pr)
        elif facts.pr and trigger == "review-comment":
            comment = self._comment_reacted_to(facts, args)
        return (comment.author, comment.kind) if comment else ("", "")

    def approval_reason(self, facts: SessionFacts, rule: Rule, args: Mapping[str, Any]) -> str:
        """Return why the rule's message waits for a person's approval (it contains text by untrusted authors), or "" if it need not."""
        event = args.get("event") or {}
        texts: list[AuthoredText] = [*self._comments_of(facts, rule.trigger, args)]
        texts.append(TextAuthor(str(event.get("author", "person")), str(event.get("writeAccess", HAS_WRITE_ACCESS))))
        return approval_reason(texts, self.projects.trusted_authors(facts.project))

    def _comments_of(self, facts: SessionFacts, trigger: str, args: Mapping[str, Any]) -> list[Comment]:
        """Return the comments that a message is about: an untrusted author's brings all of them, any other leaves untrusted ones out."""
        newest = self._comment_reacted_to(facts, args) if trigger == "review-comment" else None
        if newest is None or facts.pr is None:
            return []
        trusted = self.projects.trusted_authors(facts.project)
        until = facts.pr.comments.index(newest) + 1
        comments = [
            comment
            for comment in facts.pr.comments[:until]
            if not comment.by_agent and comment.unanswered_head == newest.unanswered_head and not comment.resolved
        ]
        return [
            comment for comment in comments if is_trusted_text(comment, trusted) or not is_trusted_text(newest, trusted)
        ]

    def _comment_reacted_to(self, facts: SessionFacts, args: Mapping[str, Any]) -> Comment | None:
        """Return the comment that is reacted to: the one that the occurrence names, else the one that is open now."""
        occurrence = str(args.get("occurrence"))
        named_comment = find_open_comment(facts, occurrence) or self.unseen_untrusted_comment(facts, occurrence)
        return named_comment or (newest_open_comment(facts, facts.pr) if facts.pr else None)

    def unseen_untrusted_comment(self, facts: SessionFacts, comment: str) -> Comment | None:
        """Return an untrusted author's comment followed only by others that do not include it, or None; it still waits for a person."""
        trusted = self.projects.trusted_authors(facts.project)
        return find_open_comment(facts, comment, lambda later: is_trusted_text(later, trusted))

    def describe_trigger(self, facts: SessionFacts, rule: Rule, event_data: Mapping[str, Any] | None = None) -> str:
        """Return what happened in one line, followed by a summary if the rule asks for one."""
        reason = self.views.status(facts).why
        if rule.trigger == "budget-exceeded" and event_data:
            text = f"{event_data.get('spent')} spent of {event_data.get('budget')} a {event_data.get('scope')}"
        elif rule.trigger == "all-complete":
            text = f"every session of {facts.project} is done"
        elif event_data and event_data.get("files"):
            other_session = f" with {event_data['other']}" if event_data.get("other") else ""
            text = f"{rule.trigger}{other_session}: {', '.join(map(str, event_data['files'][:5]))}"
        else:
            text = reason if rule.trigger.startswith("agent-") else f"{rule.trigger}: {reason}"
        summary = str((event_data or {}).get("summary") or facts.done_summary or "")
        return f"{text}\n{summary}" if rule.include_summary and summary else text

    def restart_text(self, rule: Rule) -> str:
        """Return the message for an agent that was started again."""
        default_text = RESTART_TEXTS.get(rule.trigger)
        return rule.message or default_text or "You were started again. Go on where you left off."


def errors_text(facts: SessionFacts, pr: PullRequest | None, logs: Mapping[str, str] | None = None) -> str:
    """Return the failing checks with the relevant part of their logs; the available length is divided among them."""
    failing = pr.failing_checks(facts.head) if pr else []
    room = max(MIN_LOG_LENGTH, MAX_LENGTH // max(1, len(failing)) - 300)
    log_files = logs or {}
    parts = [
        f"{one_line(run.name)} ({run.state}):\n{_fenced(_truncate(run.summary, room))}\n"
        f"whole log: {log_files.get(run.name) or run.log}"
        for run in failing[:MAX_CHECKS]
    ]
    if len(failing) > MAX_CHECKS:
        parts.append(f"and {len(failing) - MAX_CHECKS} more: ao checks {facts.id}")
    return "\n\n".join(parts)


def comments_text(
    pr: PullRequest | None,
    items: Sequence[Comment],
    trigger: str,
    hunks: Mapping[str, str] | None = None,
    trusted: Collection[str] = (),
) -> str:
    """Return the review comments with file, line, surrounding lines, author and thread; threads leave untrusted authors' text out."""
    if pr is None:
        return ""
    hunks_by_comment = hunks or {}
    if trigger == "review-comment":
        return _truncate(
            "\n\n".join(_take_until_full(_comment_text(pr, comment, hunks_by_comment, trusted) for comment in items)),
            MAX_LENGTH,
        )
    review = last_change_request(pr)
    if review is None:
        return ""
    review_text = [f"{_author_label(review)}:\n{_fenced(review.body)}"] if review.body else []
    comment_texts = (
        _comment_text(pr, comment, hunks_by_comment, trusted)
        for comment in pr.comments
        if comment.review == review.id and not comment.resolved
    )
    return _truncate("\n\n".join(_take_until_full(chain(review_text, comment_texts))), MAX_LENGTH)


def last_change_request(pr: PullRequest) -> Review | None:
    """Return the last review that asks for changes, or None."""
    return next((review for review in reversed(pr.counting_reviews) if review.verdict == "changes_requested"), None)


def _comment_text(pr: PullRequest, comment: Comment, hunks: Mapping[str, str], trusted: Collection[str]) -> str:
    where = (
        f"{quote_file_name(comment.path)}:{comment.line} "
        if comment.path and comment.line
        else f"{quote_file_name(comment.path)} "
        if comment.path
        else ""
    )
    return "\n".join(_take_until_full(_comment_lines(pr, comment, where, hunks, trusted)))


def _comment_lines(
    pr: PullRequest, comment: Comment, where: str, hunks: Mapping[str, str], trusted: Collection[str]
) -> Iterator[str]:
    yield f"{where}{_author_label(comment)} (comment {comment.id}):"
    if hunk := hunks.get(comment.id):
        yield from (f"| {line}" for line in hunk.splitlines())
    if earlier := _earlier_in_thread(pr, comment):
        yield "in answer to:"
        include_all = not is_trusted_text(comment, trusted)  # a person reads all of it before the agent does
        for earlier_comment in earlier:
            fits = include_all or is_trusted_text(earlier_comment, trusted)
            yield (
                _fenced(f"{_author_label(earlier_comment)}: {earlier_comment.body}", "> > ")
                if fits
                else f"(left out: {approval_reason([earlier_comment], trusted)})"
            )
    yield _fenced(comment.body)


def _take_until_full(parts: Iterable[str]) -> Iterator[str]:
    """Yield the parts that fit into the limit and one more: what would be cut off anyway is not rendered."""
    size = 0
    for part in parts:
        yield part
        size += len(part)
        if size > MAX_LENGTH:
            return


def _earlier_in_thread(pr: PullRequest, comment: Comment) -> list[Comment]:
    """Return the earlier comments of the same thread."""
    if comment.thread is None:
        return []
    return [
        other
        for other in pr.comments
        if other.id != comment.id and other.at <= comment.at and comment.thread in (other.id, other.thread)
    ]


def _author_label(item: Comment | Review) -> str:
    """Return an author's name, marked if the author is not a person."""
    if isinstance(item, Comment) and item.by_agent:
        return f"{one_line(item.author)} (you)"
    return one_line(item.author) if item.kind == "person" else f"{one_line(item.author)} ({item.kind})"


def _update_command(facts: SessionFacts) -> str:
    """Return the command that begins to update a branch; a clone first fetches the base branch, from origin or from the
    registered repository.
    """
    fetch, base = "", quote(facts.base)
    if facts.workspace and not facts.workspace.shared:
        fetch, base = f"git fetch {'origin' if facts.remote else quote(facts.spec.repo)} {base} && ", "FETCH_HEAD"
    if facts.pr and facts.pr.is_reviewed_by_person:
        return f"{fetch}git merge {base}"
    return (
        f"{fetch}git rebase --onto {base} {facts.old_base_commit}"
        if facts.old_base_commit
        else f"{fetch}git rebase {base}"
    )


def _file_list(pr: PullRequest | None, event: Mapping[str, Any]) -> str:
    names = event.get("files") or (pr.conflicting_files if pr else ())
    return "\n".join(f"- {quote_file_name(str(name))}" for name in names)


def _truncate(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[:room].rpartition(chr(10))[0] or text[:room]}\n… (cut)"


def _fenced(text: str, mark: str = "> ") -> str:
    """Return text as a quotation, so that it is recognizable as another author's words."""
    return "\n".join(f"{mark}{line}" for line in clean_text(text).splitlines())


def _file_of(check: str) -> str:
    """Return a check's name as a file name; a hash marks names with other characters, since at a forge a name can be any text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", check).strip(".-")[:60]
    return (
        name
        if name == check
        else f"{name}-{hashlib.sha256(check.encode(errors='replace')).hexdigest()[:8]}".lstrip("-")
    )


def _copy_without_colours(source: Path, copy: Path) -> None:
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with source.open("rb") as file:
        text = strip_escapes(file.read(MAX_LOG_BYTES).decode(errors="replace"))
    draft = copy.with_suffix(".new")
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.replace(copy)


def hunk_around(diff: str, line: int, around: int = CONTEXT_LINES) -> str:
    """Return the part of one file's diff around a line of its new side, or "" if the line is not in it."""
    rows: list[tuple[int, str, str]] = []
    new_line = 0
    for text in diff.splitlines():
        if header := _HUNK.match(text):
            if any(number == line and mark != "-" for number, mark, _ in rows):
                break
            rows, new_line = [], int(header[1])
        elif new_line and text[:1] in ("+", " ", "-", ""):
            mark = text[:1] or " "
            rows.append((new_line, mark, text[1:]))
            new_line += mark != "-"
    index = next((n for n, (number, mark, _) in enumerate(rows) if number == line and mark != "-"), None)
    if index is None:
        return ""
    nearby = rows[max(0, index - around) : index + around + 1]
    return "\n".join(_row_text(number, mark, text, number == line and mark != "-") for number, mark, text in nearby)


def _row_text(number: int, mark: str, text: str, is_target: bool) -> str:
    return f"{'→' if is_target else ' '}{number:>5} {mark} {text}"[:240]
