"""The attachments of messages to agents: log files of failing checks, the lines around a comment, and the commits of
both sides of a conflict.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.checks.summary import plain
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import CheckRun, Comment, PullRequest
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.part import Core

MOST_COMMITS = 8
MOST_HUNKS = 40
AROUND = 4
"""Lines shown before and after the line that a comment is about."""
LONGEST_LOG = 16 << 20

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

    async def material(self, facts: SessionFacts, trigger: str, *, keep: bool = True) -> Attachments:
        """Return the attachments that a message about this trigger needs; `keep` is whether logs are copied into the
        session's private folder.
        """
        pr = facts.pr
        if pr is None:
            return Attachments()
        ours, theirs = await self._commits_of_both_sides(facts, pr) if pr.conflicts else ("", "")
        return Attachments(
            logs={run.name: await self._log(facts, run, keep=keep) for run in pr.failing(facts.head)},
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
        ][-MOST_HUNKS:]
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
        if facts.place is None or not head:
            return ""
        since = f"{facts.place.base_commit}...{head}"
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "-U8")
        return await self._git(facts, "diff", *options, "--end-of-options", since, "--", path)

    async def _file_lines(self, facts: SessionFacts, comment: Comment, head: str) -> str:
        """Return the lines of the file itself, for a comment on a line that was not changed."""
        lines = (await self._git(facts, "show", "--end-of-options", f"{head}:{comment.path}")).splitlines()
        line = comment.line or 0
        if not 0 < line <= len(lines):
            return ""
        start = max(1, line - AROUND)
        return "\n".join(
            _row_text(n, " ", lines[n - 1], n == line) for n in range(start, min(len(lines), line + AROUND) + 1)
        )

    # -- conflicts -----------------------------------------------------------------------------------------------------

    async def _commits_of_both_sides(self, facts: SessionFacts, pr: PullRequest) -> tuple[str, str]:
        """Return the titles of the session's and of the base branch's commits that touch the conflicting files."""
        head, base = facts.head or "", facts.base_head or ""
        if not head or not base:
            return "", ""
        merged_sessions = {
            other.pr.landed: other for other in self.flow.sessions.values() if other.pr and other.pr.landed
        }
        ours = await self._commits(facts, f"{base}..{head}", pr.conflicts)
        theirs = await self._commits(facts, f"{head}..{base}", pr.conflicts)
        session_of = {
            commit: f" ({other.id}: {other.spec.title})" for commit, other in merged_sessions.items() if commit
        }
        return (
            "\n".join(f"- {commit[:8]} {title}" for commit, title in ours),
            "\n".join(f"- {commit[:8]} {title}{session_of.get(commit, '')}" for commit, title in theirs),
        )

    async def _commits(self, facts: SessionFacts, revisions: str, files: Sequence[str]) -> list[tuple[str, str]]:
        options = ("--no-merges", f"--max-count={MOST_COMMITS}", "--format=%H %s")
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
        text = plain(file.read(LONGEST_LOG).decode(errors="replace"))
    draft = copy.with_suffix(".new")
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.replace(copy)


def hunk_around(diff: str, line: int, around: int = AROUND) -> str:
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
