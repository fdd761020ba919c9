"""Reads one session in detail: its diff, terminal log, screen and environment, and why its status is as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.diff import render_change
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.base.text.terminal_output import last_lines, read_chunks, tail, to_plain_text
from agent_orchestrator.config.model import PluginSection
from agent_orchestrator.core.episodes import STATUS_TRIGGERS
from agent_orchestrator.core.events import event_json, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.outbox import row_json
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.core.store import codec
from agent_orchestrator.errors import AoError, Conflict, NotFound
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.sessions.agents import prompts
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_plugins import handle_of
from agent_orchestrator.sessions.session_view import MAX_FILES, SessionViews
from agent_orchestrator.sessions.workspace_access import read_work

LOG_POLL_SECONDS = 0.05
MAX_SCREEN_LINES = 50
"""The lines that are shown of a terminal that is gone."""

log = structlog.get_logger()


class SessionDetails(Part):
    """Reads session details; changes nothing."""

    def __init__(self, core: Core, specs: SessionSpecs, views: SessionViews, budgets: Budgets) -> None:
        super().__init__(core)
        self.specs = specs
        self.views = views
        self.budgets = budgets

    async def diff(self, session: str, since: str | None = None) -> dict[str, Any]:
        """Return what the session changed since its base commit, or since a commit of its branch, including uncommitted
        changes. Raises Conflict if there is no workspace or Git fails.
        """
        facts = self.flow.sessions[session]
        if facts.workspace is None:
            raise Conflict(f"{session} has no workspace yet", f"see it: ao status {session}")
        try:
            return await read_work(self.core, session, partial(self._diff, since=since))
        except (GitFailed, OSError) as error:
            raise Conflict(
                f"the change of {session} cannot be read: {error}", f"look at it: ao path {session}"
            ) from None

    async def _diff(self, git: Git, facts: SessionFacts, present: bool, *, since: str | None) -> dict[str, Any]:
        assert facts.workspace is not None
        end_revision = None if present else facts.head or facts.branch
        if end_revision is not None and await git.resolve(end_revision) is None:
            raise NotFound(
                f"neither the workspace nor the branch {facts.branch} of {facts.id} is there any more",
                f"see what was saved of it: ao status {facts.id}",
            )
        base = facts.workspace.base_commit if since is None else await self._own_commit(git, facts, since, end_revision)
        changes = await git.status() if present else []
        diff = await render_change(git, base, end_revision)
        return {
            "diff": diff.patch,
            "stat": diff.stat,
            "base": base,
            "head": facts.head,
            "files": list(diff.files),
            "omitted": list(diff.omitted),
            "uncommitted": sorted({change.path for change in changes}),
        }

    async def _own_commit(self, git: Git, facts: SessionFacts, commit: str, end: str | None) -> str:
        """Return the full name of a commit in the history of the session's branch. Raises NotFound for any other commit."""
        full_commit = await git.resolve(commit)
        if full_commit is None or not await git.is_ancestor(full_commit, end or "HEAD"):
            raise NotFound(
                f"{commit} is no commit of {facts.branch}; it may have been rewritten",
                "leave `since` out to see the whole change",
            )
        return full_commit

    def prompt(self, session: str) -> dict[str, str]:
        """Return what the session's agent is instructed: how to work here, and its task."""
        facts = self.flow.sessions[session]
        system = prompts.system_prompt_for_kind(facts, self.core.settings.project(facts.project))
        return {"system": system, "prompt": prompts.first_prompt(facts.spec)}

    async def log(self, session: str, *, raw: bool, tail_lines: int | None, follow: bool) -> AsyncIterator[bytes]:
        """Yield the terminal's log; with `follow` also what it shows from now on, until the session ends."""
        path = self.home.terminal_log(session)
        if tail_lines is not None:
            data = tail(path)
            lines = (data if raw else to_plain_text(data).encode()).splitlines(keepends=True)
            yield b"".join(lines[-tail_lines:])
        else:
            incomplete = b""
            for chunk in read_chunks(path):
                if raw:
                    yield chunk
                else:
                    complete, newline, incomplete = (incomplete + chunk).rpartition(b"\n")
                    if not newline:  # a line longer than a chunk is yielded in pieces
                        complete, incomplete = incomplete, b""
                    yield (to_plain_text(complete) + newline.decode()).encode()
                    await asyncio.sleep(0)
            if incomplete:
                yield to_plain_text(incomplete).encode()
        if follow:
            async for chunk in self._follow(session, path):
                yield chunk if raw else to_plain_text(chunk).encode()

    async def screen(self, session: str) -> str:
        """Return what the terminal shows; of a terminal that is gone, its last lines."""
        facts = self.flow.sessions[session]
        handle = handle_of(facts)
        if handle is not None and facts.live:
            try:
                return await self.core.plugins.runtime_of(facts).screen(handle)
            except AoError as error:
                log.debug("a screen could not be read", session=session, error=str(error))
        return last_lines(self.home.terminal_log(session), MAX_SCREEN_LINES)

    async def _follow(self, session: str, path: Path) -> AsyncIterator[bytes]:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        has_grown = asyncio.Event()
        stop = self.core.watch.watch_file(path, has_grown.set)
        position = path.stat().st_size
        try:
            while True:
                with path.open("rb") as file:
                    file.seek(position)
                    chunk = file.read(1 << 16)
                position += len(chunk)
                if chunk:
                    yield chunk
                    continue
                if not self.flow.sessions[session].live:
                    return
                has_grown.clear()
                try:
                    await asyncio.wait_for(has_grown.wait(), 1.0)
                    await asyncio.sleep(LOG_POLL_SECONDS)
                except TimeoutError:
                    continue
        finally:
            stop()

    async def environment(self, session: str) -> dict[str, Any]:
        """Return the folder and variables with which a shell of this session runs."""
        facts = self.flow.sessions[session]
        path = self._workspace(facts)
        await self.core.sites.local.login_ready.wait()
        return {"cwd": str(path), "env": self.specs.environment(facts), "node": facts.node}

    async def run(self, session: str, command: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
        """Run a command in the session's workspace, on whichever node that is; yield each line of output, and at last the exit code."""
        facts = self.flow.sessions[session]
        path = self._workspace(facts)
        await self.core.sites.local.login_ready.wait()
        env = self.specs.environment(facts)
        lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        host = self.core.sites.for_session(facts).host
        output, loop = REDACTOR.line_filter(lambda line: lines.put_nowait({"output": line})), asyncio.get_running_loop()

        def on_line(line: str) -> None:
            output.feed(line)
            loop.call_soon(output.flush)

        def on_end(_: object) -> None:
            output.finish()
            lines.put_nowait({})

        task = asyncio.ensure_future(host.stream(command, on_line, cwd=path, env=env))
        task.add_done_callback(on_end)
        try:
            while line := await lines.get():
                yield line
            yield {"code": await task}
        finally:
            task.cancel()

    def _workspace(self, facts: SessionFacts) -> Path:
        if facts.workspace is None or not facts.workspace.present:
            raise Conflict(f"{facts.id} has no workspace", f"bring it back: ao restore {facts.id}")
        return Path(facts.workspace.path)

    async def attach(self, session: str, *, watch: bool = False) -> dict[str, Any]:
        """Return the command that shows the session's terminal; with `watch` read-only."""
        facts = self.flow.sessions[session]
        handle = handle_of(facts)
        if handle is None or not facts.live:
            raise Conflict(
                f"{session} has no running agent to attach to",
                f"see its past: ao logs {session}; bring it back: ao restore {session}",
            )
        return {"argv": list(self.core.plugins.runtime_of(facts).attach_command(handle, watch=watch)), "env": {}}

    def window(self, session: str) -> dict[str, Any]:
        """Return what opens the session on a person's screen: folder, address and terminal plugin."""
        facts = self.flow.sessions[session]
        project = self.core.config.project(facts.project)
        terminal = project.terminal if project else PluginSection()
        workspace = facts.workspace.path if facts.workspace and facts.workspace.present else None
        return {
            "session": session,
            "live": facts.live,
            "workspacePath": workspace,
            "node": facts.node,
            "cwd": workspace if workspace and not facts.remote else facts.spec.repo,
            "url": f"{self.core.sites.local.url}/sessions/{quote(session)}" if self.core.sites.local.url else "",
            "terminal": {
                "plugin": terminal.plugin,
                "options": terminal.options,
                "files": self.core.plugins.allowed_plugin_files(project) if project else [],
            },
        }

    async def explain_status(self, session: str) -> dict[str, Any]:
        """Return the facts, evidence and rules behind the session's status, and its latest effects and events."""
        facts = self.flow.sessions[session]
        status = self.views.status(facts)
        rows = await self.flow.store.rows(session, 20)
        recent = await self.flow.store.events(0, 20, session=session, newest=True)
        triggers = {STATUS_TRIGGERS.get(status.name), *facts.episodes}
        rules = [rule for rule in self.flow.rules(facts.project, facts.spec.profile) if rule.trigger in triggers]
        lines = [
            f"{session} is {status.name}: {status.why}.",
            f"That rests on the word of: {status.source}, at {rfc3339(status.at)}.",
            *(f"It waits for {status.waiting_for}." for _ in [0] if status.waiting_for and status.name != "failed"),
            *(f"  | {line}" for line in _last_output(facts)),
            *(f"Note: {note}." for note in facts.notes),
            *(f"Note: {note}." for note in [self.budgets.unenforced_reason(facts)] if note),
            *(
                f"It will collide with {other} ({item.kind}): {', '.join(item.files[:MAX_FILES]) or 'in no single file'}."
                for other, item in self.views.conflicts_of(facts).items()
            ),
            *(
                f"Rule {rule.name}: on {rule.trigger}, {rule.action}{'' if rule.auto else ' (offered to you)'}"
                f"{_attempts_text(facts, rule)}."
                for rule in rules
            ),
            *(
                f"Offered to you: {item.action}, by rule {item.rule}: ao answer {session} --allow."
                for item in facts.offers
            ),
            *(
                f"Message {item.id} is {item.state}: {item.reason or 'its turn comes'}."
                for item in facts.messages
                if item.pending
            ),
            *(f"Effect {row.intent.kind}: {row.state}{f', {row.result}' if row.result else ''}." for row in rows[:8]),
        ]
        return {
            "session": session,
            "status": status.name,
            "column": status.column,
            "evidence": {"source": status.source, "at": rfc3339(status.at)},
            "lines": lines,
            "facts": _without_secrets(codec.dump(facts)),
            "effects": [row_json(row) for row in rows],
            "reactions": [event_json(event) for event in recent if event.type in ("notified", "reacted", "escalated")],
            "events": [event_json(event) for event in recent],
        }


def _attempts_text(facts: SessionFacts, rule: Rule) -> str:
    """Return how often a rule was followed in this episode, as part of a sentence."""
    episode = facts.episodes.get(rule.trigger)
    if episode is None:
        return ""
    total = f" of {rule.retries}" if rule.retries is not None else ""
    return f"; attempt {episode.attempts}{total}{', and you were called' if episode.escalated else ''}"


def _last_output(facts: SessionFacts) -> list[str]:
    """Return the last lines that the agent printed, if it ended."""
    return facts.launch.output.splitlines()[-10:] if facts.launch and facts.launch.ended else []


def _without_secrets(facts: dict[str, Any]) -> dict[str, Any]:
    if facts.get("place"):
        facts["place"] = {key: value for key, value in facts["place"].items() if key != "git_env"}
    return facts
