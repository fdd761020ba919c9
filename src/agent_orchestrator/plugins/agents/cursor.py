"""`cursor`: Cursor's CLI agent, made from its documentation and not run (docs/agents/cursor.md)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.journals import Journal, entries_in, latest
from agent_orchestrator.protocols import Activity, AgentContext, AgentLaunch, AgentRun, Found, Heard, Kept, ScreenRules
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL = "install it: curl https://cursor.com/install -fsS | bash"
MODES: Mapping[str, tuple[str, ...]] = {"plan": ("--mode", "plan"), "full": ("--force",)}

SETTLED = 0.4
"""Seconds without output after which its screen is looked at; while it prints on, each so often."""
LOOK_EVERY = 1.0

_QUERY = re.compile(r"\A<user_query>\n?(.*?)\n?</user_query>\Z", re.DOTALL)


class Cursor:
    """Runs `cursor-agent` interactively."""

    screen = ScreenRules(
        ready=re.compile(r"^\W*(?:Add a follow-up|Plan, search, build anything)", re.MULTILINE),
        busy=re.compile(r"ctrl\+c to stop", re.IGNORECASE),
        blocked=re.compile(
            r"^.*(?:Waiting for approval|Run this command\?|Run \(once\)|Workspace Trust Required|Skip \(esc or n\)).*$",
            re.MULTILINE | re.IGNORECASE,
        ),
    )
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y",), "deny": ("n",)}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its folders: login, chats."""
        del private
        home = Path(env.get("HOME") or Path.home())
        kept = cli.kept(home / ".cursor", "mcp.json", "hooks.json", "commands", "extensions", "rules", "skills")
        return replace(kept, writable=(*kept.writable, home / ".config" / "cursor"))

    async def detect(self) -> Found | None:
        """Is `cursor-agent` here?"""
        return await cli.detect(self._host, "cursor-agent")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """`cursor-agent PROMPT` in a folder that it is told to trust; `--resume` with the chat that was heard of."""
        argv = [cli.program(self._host, "cursor-agent", context, INSTALL), "--trust"]
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += MODES.get(context.permissions, ())
        if context.resume is None:
            prompt = cli.opening(context)
        else:
            argv.append(f"--resume={context.resume}" if context.resume else "--continue")
            prompt = cli.fitting(context.message, context)
        if prompt:
            argv.append(cli.as_argument(prompt))
        folder = _transcripts(context.env, context.workspace)
        return AgentLaunch(
            tuple(argv),
            waits=not prompt,
            conversation=context.resume or None,
            memo={"folder": str(folder), "before": "\n".join(path.stem for path in _chats(folder))},
        )

    def typed(self, text: str) -> str:
        """A text that begins like one of its commands gets a space in front."""
        return f" {text}" if text.startswith(("/", "!", "&")) else text

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """What it takes up is in its transcript; what it does is on its screen."""
        ear = _Ear(run)
        run.changes.watch(run.log)
        run.changes.watch(ear.folder)
        looked, quiet = 0.0, False
        while True:
            async for heard in ear.read():
                yield heard
            if quiet or time.monotonic() - looked >= LOOK_EVERY:
                looked = time.monotonic()
                if seen := ear.see(await _screen(run), self.screen):
                    yield seen
            shown = ear.written
            if not await run.changes.next(None if quiet else SETTLED):
                break
            quiet = ear.written == shown
        async for heard in ear.read():
            yield heard


class _Ear:
    """What was heard of one launch so far."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self.folder = Path(run.memo["folder"])
        self._before = set(run.memo.get("before", "").split("\n"))
        self._chat = run.conversation
        self._journal: Journal | None = None
        self._state: Activity | None = None
        self._said = ""

    @property
    def written(self) -> int:
        """How much its terminal has shown."""
        try:
            return self._run.log.stat().st_size
        except OSError:
            return 0

    async def read(self) -> AsyncIterator[Heard]:
        """Messages that it took up, and its chat's id once it has one."""
        if self._chat is None:
            new = [path.stem for path in _chats(self.folder) if path.stem not in self._before]
            if new:
                self._chat = new[-1]
                yield Heard((r.ConversationReport(self._chat),), "transcript")
        if self._journal is None and self._chat:
            found = next((path for path in _chats(self.folder) if path.stem == self._chat), None)
            self._journal = Journal(found, replace(self._run, cursors={})) if found else None
        if self._journal is not None:
            told = self._run.cursors.get(self._journal.place, 0)
            async for line in self._journal.lines():
                reports = self._take(line.data)
                if reports and line.end > told:
                    yield self._journal.heard(line, *reports)

    @forgiving
    def _take(self, record: Mapping[str, Any]) -> list[r.Report]:
        text = text_of(record)
        if record.get("role") == "user" and text:
            self._said = ""
            return [r.TookReport(cli.without_rules(text))]
        if record.get("role") == "assistant" and text:
            self._said = text
        return []

    def see(self, screen: str, rules: ScreenRules) -> Heard | None:
        """What its screen says, when that is another thing than before."""
        if rules.blocked and (match := rules.blocked.search(screen)):
            state, report = Activity.BLOCKED, r.ActivityReport(Activity.BLOCKED, match[0].strip(" │┃"))
        elif rules.busy and rules.busy.search(screen):
            state, report = Activity.ACTIVE, r.ActivityReport(Activity.ACTIVE)
        elif rules.ready and rules.ready.search(screen):
            state, report = Activity.IDLE, r.ActivityReport(Activity.IDLE)
        else:
            return None
        if state == self._state:
            return None
        before, self._state = self._state, state
        if state == Activity.IDLE and before == Activity.ACTIVE:
            return Heard((r.TurnReport(self._said),), "screen")
        return Heard((report,), "screen")


def text_of(record: Mapping[str, Any]) -> str:
    """The text of a transcript's record; a person's words may stand in a tag of its own."""
    content = (record.get("message") or {}).get("content")
    parts = content if isinstance(content, list) else []
    text = "\n".join(
        str(part.get("text")) for part in parts if isinstance(part, Mapping) and part.get("type") == "text"
    )
    match = _QUERY.match(text.strip())
    return match[1] if match else text


def project_key(workspace: Path) -> str:
    """The name under which it keeps what belongs to one folder."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", os.path.realpath(workspace)).strip("-")


def _transcripts(env: Mapping[str, str], workspace: Path) -> Path:
    home = Path(env.get("HOME") or Path.home())
    return home / ".cursor" / "projects" / project_key(workspace) / "agent-transcripts"


def _chats(folder: Path) -> list[Path]:
    """A chat's file, in a folder of its own or not, the latest last."""
    within = entries_in(folder)
    return latest({path.stem: path for path in (*within, *entries_in(*within)) if path.suffix == ".jsonl"}.values())


async def _screen(run: AgentRun) -> str:
    try:
        return await run.screen()
    except AoError:
        return ""
