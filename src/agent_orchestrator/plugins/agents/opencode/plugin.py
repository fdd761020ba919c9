"""`opencode`: OpenCode's terminal, heard, told and answered through the HTTP server that it runs on loopback (docs/agents/opencode.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import Temporary, UsageError
from agent_orchestrator.plugins.agents.opencode.server_events import Ears, failure, usage
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.http import Answer, Loopback
from agent_orchestrator.protocols import (
    Activity,
    AgentContext,
    AgentLaunch,
    AgentRun,
    Delivered,
    Delivery,
    Found,
    Heard,
    Held,
    Kept,
    Permission,
    ScreenRules,
    Turn,
    TurnLine,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL = "install it: npm install -g opencode-ai"
USER = "opencode"
PORTS = range(12000, 32000)
"""Below those that systems give to outgoing connections: a port that is free now is free when the server binds it."""
REPLIES = {"allow": "once", "always": "once", "deny": "reject"}

MCP = "ao"
"""How it calls our MCP server; its tools are `ao_…`."""
FIRST_WITHIN = 2.0
"""Seconds: asked while it starts, it may accept the connection and never say a word; asked again, it greets at once."""
SILENCE = 30.0
"""Seconds: its event stream has a heartbeat every ten."""
STARTING_PAUSE = 0.3
STORED_WITHIN = 5.0
SHOWN_TRIES = 10
RECENT = 50
KEPT = 100
"""Messages whose ids are remembered over a restart of the agent."""

_READING = ("glob", "grep", "list", "lsp", "question", "skill", "task", "todoread", "todowrite")
_UNASKED = {"git status": "allow", "git add *": "allow", "git commit -m *": "allow", "git commit -am *": "allow"}
"""Where there is nobody to ask: without it nothing could be committed."""
_MORE = {
    **{
        f"git {word} *{mark}*": "ask"
        for word in ("add", "commit")
        for mark in ("--path", ">", "<", "`", "$", "\\", ";", "|")
    },
    **{f"git add *{mark}*": "ask" for mark in ('"', "'", "--")},
}
"""What makes more of such a command than it says."""
_READ = {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}

SETTINGS = (
    "opencode.json",
    "opencode.jsonc",
    "config.json",
    "AGENTS.md",
    "agent",
    "agents",
    "command",
    "commands",
    "plugin",
    "plugins",
)
"""What of its configuration it takes commands from: a sandboxed one only reads it."""
_HOME = re.compile(r"^\W*Ask anything", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Door:
    """How the server of one launch is reached, and what was handed over there. In the session's private folder: the password is
    for nobody else, and what is kept must be there when the daemon dies in the middle.
    """

    launch: str = ""
    port: int = 0
    password: str = ""
    conversation: str | None = None
    sent: Mapping[str, str] = field(default_factory=dict)
    """OpenCode's ids of our messages, given before they are handed over: a second try is the same message."""
    adopts: str = ""
    """A conversation that was begun elsewhere: a copy of it is to be continued here."""
    interrupting: str = ""
    """The message that a turn is being stopped for: its end is no interruption of the work."""


class OpenCode:
    """Runs `opencode` with its server at a port of its own."""

    screen = ScreenRules()
    interrupt_keys = ("Escape", "Escape")
    """For people, one after the other: a turn is stopped, and a permission answered, through the server."""
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._said: dict[str, str] = {}

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Login, conversations and state; its configuration, where it keeps what its plugins need."""
        del private
        home = Path(env.get("HOME") or Path.home())
        data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
        state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state") / "opencode"
        own = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        kept = cli.kept(own, *SETTINGS)
        return replace(kept, writable=(*kept.writable, data, state))

    async def detect(self) -> Found | None:
        """Is `opencode` here?"""
        return await cli.detect(self._host, "opencode")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Its terminal and its server; the task is handed over through the server once that answers."""
        door = _door_for(context)
        _keep(context.private, door)
        argv = [self._program(context), "--port", str(door.port), "--hostname", "127.0.0.1"]
        if context.permissions == "plan":
            argv += ["--agent", "plan"]
        if door.conversation:
            argv += ["--session", door.conversation]
        text = (context.task or context.prompt) if context.resume is None else context.message
        model = self._model_of(context)
        return AgentLaunch(
            tuple(argv),
            {
                **_settings(context, model),
                "OPENCODE_SERVER_USERNAME": USER,
                "OPENCODE_SERVER_PASSWORD": door.password,
            },
            paste=text or None,
            waits=True,
            conversation=door.conversation,
            memo={
                "port": str(door.port),
                "since": str(time.time()),
                "model": model or "",
                "agent": "plan" if context.permissions == "plan" else "",
                "told": "" if text else "nothing",
            },
        )

    def _program(self, context: AgentContext) -> str:
        return cli.program(self._host, "opencode", context, INSTALL)

    def _model_of(self, context: AgentContext) -> str | None:
        model = context.model or self._model
        if model and "/" not in str(model):
            raise UsageError(
                f"opencode knows no model {str(model)!r}", "name it provider/model; see them: opencode models"
            )
        return str(model) if model else None

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Its server's events, after what was missed of them."""
        ears = Ears(
            _conversation(run),
            float(run.memo["since"]),
            run.cursors,
            awaits=not run.memo["told"],
            going_on=lambda: bool(_door(run.private).interrupting),
        )
        while True:
            server = _server(run)
            with contextlib.suppress(Temporary):
                async with contextlib.aclosing(server.events("/event", first=FIRST_WITHIN, silence=SILENCE)) as events:
                    async for event in events:
                        if ears.conversation is None and (begun := _door(run.private).conversation):
                            for heard in ears.begun({"id": begun}):
                                yield heard
                        if event.get("type") == "server.connected":
                            async for heard in _missed(server, ears):
                                yield heard
                        for heard in ears.hear(event):
                            yield heard
                        if event.get("type") == "session.created":
                            _keep(run.private, replace(_door(run.private), conversation=ears.conversation))
                        if event.get("type") in ("server.connected", "session.status"):
                            await _give_again(server, run, ears)
            if not await run.changes.next(STARTING_PAUSE):
                return

    # -- telling -------------------------------------------------------------------------------------------------------

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """As an answer to the question that it shows, or as a message under an id that stays the same however often it is tried."""
        server = _server(run)
        try:
            conversation = _conversation(run) or await _begin(server, run)
            await _show(server, run, conversation)
            if await _reply_to_question(server, run, conversation, message, text):
                return Delivered()
            if interrupt:
                _keep(run.private, replace(_door(run.private), interrupting=message))
                await _asked(server, "POST", f"/session/{conversation}/abort")
            return await _prompt(server, run, conversation, message, text)
        except Temporary:
            return Held("opencode does not answer yet")

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """Through its server, by the request's id; one that was answered in the terminal meanwhile is answered."""
        if not permission.request:
            return None
        body = {"reply": REPLIES[decision]}
        if decision == "deny" and text:
            body["message"] = text
        try:
            answer = await _server(run).call("POST", f"/permission/{permission.request}/reply", body)
        except Temporary:
            return None
        return () if answer.ok or answer.status == 404 else None

    # -- without a terminal --------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """`opencode run`, which reads its prompt from standard input; what it is not allowed it does without."""
        argv = [self._program(context), "run", "--format", "json"]
        if model := self._model_of(context):
            argv.append(f"--model={model}")  # by itself it would be an option where it begins like one
        if context.permissions == "plan":
            argv += ["--agent", "plan"]
        if conversation:
            argv += ["--session", conversation]
        return Turn(tuple(argv), _settings(context, None), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """One event of `opencode run --format json`."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return TurnLine(line)
        if not isinstance(event, dict):
            return TurnLine(line)
        session, part = str(event.get("sessionID") or ""), event.get("part") or {}
        match event.get("type"):
            case "step_start":
                return TurnLine("", (r.ConversationReport(session), r.ActivityReport(Activity.ACTIVE)))
            case "text":
                self._said[session] = str(part.get("text") or "")
                return TurnLine(self._said[session])
            case "tool_use":
                return TurnLine(_shown(part))
            case "step_finish":
                spent = usage(part)
                if part.get("reason") == "tool-calls":
                    return TurnLine("", (spent,) if spent else ())
                ended = r.TurnReport(self._said.pop(session, ""))
                return TurnLine("", (spent, ended) if spent else (ended,))
            case "error":
                report = failure(event.get("error") or {})
                return TurnLine(f"error: {getattr(report, 'detail', '') or 'limit reached'}", (report,))
        return TurnLine()


# -- how it is set up --------------------------------------------------------------------------------------------------


def _settings(context: AgentContext, model: str | None) -> dict[str, str]:
    """The system prompt, the model and the permissions, by variables: the user's own configuration is read, and left alone."""
    content: dict[str, Any] = {}
    if given := context.env.get("OPENCODE_CONFIG_CONTENT"):
        try:
            content = dict(json.loads(given))
        except (ValueError, TypeError):
            raise UsageError("OPENCODE_CONFIG_CONTENT is not a JSON object", "correct it, or unset it") from None
    if context.system:
        rules = context.private / "opencode-rules.md"
        rules.write_text(context.system, encoding="utf-8")
        content["instructions"] = [*content.get("instructions", ()), str(rules)]
    if model:
        content["model"] = model
    if context.mcp:
        content["mcp"] = {**content.get("mcp", {}), MCP: _mcp(context)}
    env = {
        "OPENCODE_PERMISSION": json.dumps(_permissions(context)),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "PWD": str(context.workspace),  # it works where this says, not where it is started
    }
    return {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(content)} if content else env


def _mcp(context: AgentContext) -> dict[str, Any]:
    """Our MCP server; it puts the token in from the environment."""
    if context.mcp.startswith("https:"):
        variables = {name: f"{{env:{name}}}" for name in cli.BRIDGE_VARIABLES}
        return {"type": "local", "command": list(cli.BRIDGE), "environment": variables, "enabled": True}
    headers = {"Authorization": "Bearer {env:AO_TOKEN}"}
    return {"type": "remote", "url": context.mcp, "headers": headers, "oauth": False, "enabled": True}


def _permissions(context: AgentContext) -> dict[str, Any]:
    """Rules in OpenCode's order, where the last that matches holds. They are merged behind the user's own, and a key that he has used
    keeps its place there; so each is spelled as a pattern that nobody else writes.
    """
    if context.permissions == "full" and context.edits:
        return {"**": "allow"}
    rules: dict[str, dict[str, str]] = {
        "read": dict(_READ),
        **{tool: {"*": "allow"} for tool in _READING},
        "edit": {"*": {"plan": "deny", "auto-edit": "allow"}.get(context.permissions, "ask")},
        "bash": {
            "*": "ask",
            **({**_UNASKED, **_MORE} if context.mode == "headless" and context.permissions == "auto-edit" else {}),
            **{command: "allow" for command in cli.own_commands(context) if not re.search(r"[*?]", command)},
        },
    }
    for one in context.allowed:
        if not re.search(r"[*?]", one.command):
            for what in (one.command,) if one.tool == "bash" else one.command.split(", "):
                rules.setdefault(one.tool, {"*": "ask"})[what or "*"] = "allow"
    if context.permissions == "plan" or not context.edits:
        rules["edit"] = {"*": "deny"}
    ours = {f"{MCP}_*": "allow"} if context.mcp else {}
    return {"**": "ask", **{f"{tool[:-1]}?": rule for tool, rule in rules.items()}, **ours}


def _door_for(context: AgentContext) -> _Door:
    """This launch's port and password; asked again for the same launch, the same."""
    door, launch = _door(context.private), context.env.get("AO_SPOOL", "")
    if door.port and launch and door.launch == launch:
        return door
    fresh, adopts = _Door(launch, _free_port(), secrets.token_urlsafe(24)), door.adopts
    if context.resume is None:
        return fresh
    if context.resume and context.resume != door.conversation:
        door, adopts = fresh, context.resume
    return replace(fresh, conversation=door.conversation, adopts=adopts, sent=dict(list(door.sent.items())[-KEPT:]))


def _free_port() -> int:
    for _ in range(100):
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Temporary("no free port was found for opencode's server")


def _door(private: Path) -> _Door:
    try:
        return _Door(**json.loads((private / "opencode.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _Door()


def _keep(private: Path, door: _Door) -> None:
    file = private / "opencode.json"
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(asdict(door)), encoding="utf-8")
    new.replace(file)


def _conversation(run: AgentRun) -> str | None:
    """The conversation that this session holds, if it has begun."""
    door = _door(run.private)
    return run.conversation if run.conversation != door.adopts else door.conversation


def _server(run: AgentRun) -> Loopback:
    return Loopback(int(run.memo["port"]), USER, _door(run.private).password)


# -- what it says and is told ------------------------------------------------------------------------------------------


async def _missed(server: Loopback, ears: Ears) -> AsyncIterator[Heard]:
    """What its records tell of the time before its events were heard."""
    conversation = ears.conversation
    if conversation is None:
        for heard in ears.status({}, missed=True):
            yield heard
        return
    for session in await _family(server, conversation):
        if session["id"] != conversation:
            ears.adopt(str(session["id"]))
        for message in await _messages(server, str(session["id"]), ears.floor(str(session["id"]))):
            for heard in ears.message(message.get("info") or {}):
                yield heard
            for part in message.get("parts") or ():
                ears.part(part)
    for heard in ears.todo(await _listed(server, f"/session/{conversation}/todo")):
        yield heard
    status = (await _asked(server, "GET", "/session/status")).data or {}
    for heard in ears.status(status.get(conversation) or {}, missed=True):
        yield heard
    for path, take in (("/permission", ears.permission), ("/question", ears.question)):
        for asked in await _listed(server, path):
            for heard in take(asked):
                yield heard


async def _family(server: Loopback, conversation: str) -> list[dict[str, Any]]:
    """The conversation, and those that its subagents hold."""
    found: list[dict[str, Any]] = [{"id": conversation}]
    for session in found:
        found += await _listed(server, f"/session/{session['id']}/children")
    return found


async def _messages(server: Loopback, session: str, floor: int) -> list[dict[str, Any]]:
    """A conversation's messages, all that are newer than `floor`; the older ones only as far as they come along."""
    path = f"/session/{session}/message"
    recent = await _listed(server, f"{path}?limit={RECENT}")
    if len(recent) < RECENT or recent[0]["info"]["time"]["created"] < floor:
        return recent
    return await _listed(server, path)


async def _begin(server: Loopback, run: AgentRun) -> str:
    """The conversation that is to take the first message, made once."""
    door = _door(run.private)
    if door.conversation is None:
        if not (await run.screen()).strip():
            raise Temporary("opencode's terminal shows nothing yet")
        begun = await (_adopt(server, run, door.adopts) if door.adopts else _asked(server, "POST", "/session", {}))
        door = replace(_door(run.private), conversation=str(begun.data["id"]))
        _keep(run.private, door)
    assert door.conversation is not None
    return door.conversation


async def _adopt(server: Loopback, run: AgentRun, conversation: str) -> Answer:
    """A copy of a conversation that was held in another folder, which would go on working there, brought to this one."""
    copy = await _asked(server, "POST", f"/session/{conversation}/fork", {})
    move = {"sessionID": copy.data["id"], "destination": {"directory": str(run.workspace)}}
    await _asked(server, "POST", "/experimental/control-plane/move-session", move)
    moved = await _asked(server, "GET", f"/session/{copy.data['id']}")
    if Path(moved.data["directory"]) != run.workspace:
        raise Temporary(f"opencode left the conversation in {moved.data['directory']}")
    return moved


async def _show(server: Loopback, run: AgentRun, conversation: str) -> None:
    """A terminal that shows no conversation, as it does at first, is to show this one."""
    for _ in range(SHOWN_TRIES):
        if not _HOME.search(await run.screen()):
            return
        await _asked(server, "POST", "/tui/select-session", {"sessionID": conversation})
        await asyncio.sleep(0.3)


async def _prompt(server: Loopback, run: AgentRun, conversation: str, message: str, text: str) -> Delivery:
    door = _door(run.private)
    key = door.sent.get(message)
    if key is None:
        key = _message_id()
        _keep(run.private, replace(door, sent={**door.sent, message: key}))
    elif await _stored(server, conversation, key):
        return Delivered()
    await _post(server, run, conversation, key, text)
    end = time.monotonic() + STORED_WITHIN
    while not await _stored(server, conversation, key):
        if time.monotonic() > end:
            return Held("opencode has not stored it yet")
        await asyncio.sleep(0.05)
    _keep(run.private, replace(_door(run.private), interrupting=""))
    return Delivered()


async def _give_again(server: Loopback, run: AgentRun, ears: Ears) -> None:
    """A message of ours that came as a turn was being stopped is in the conversation, but nobody answers it: it is posted once more,
    under its id.
    """
    ours = _door(run.private).sent.values()
    left = {key: text for key, text in ears.stranded().items() if key in ours}
    if left and ears.conversation:
        key = max(left)
        await _post(server, run, ears.conversation, key, left[key])


async def _post(server: Loopback, run: AgentRun, conversation: str, key: str, text: str) -> None:
    session = (await _asked(server, "GET", f"/session/{conversation}")).data
    body: dict[str, Any] = {"messageID": key, "parts": [{"id": f"prt{key[3:]}", "type": "text", "text": text}]}
    if agent := session.get("agent") or run.memo.get("agent"):
        body["agent"] = agent
    if not session.get("model") and run.memo.get("model"):
        provider, _, model = run.memo["model"].partition("/")
        body["model"] = {"providerID": provider, "modelID": model}
    await _asked(server, "POST", f"/session/{conversation}/prompt_async", body)


async def _stored(server: Loopback, conversation: str, key: str) -> bool:
    return (await server.call("GET", f"/session/{conversation}/message/{key}")).ok


async def _reply_to_question(server: Loopback, run: AgentRun, conversation: str, message: str, text: str) -> bool:
    """A question that it shows is answered by the message: a line each, if it asks as many things as there are lines."""
    answered = _door(run.private).sent.get(message, "")
    asked = [one for one in await _listed(server, "/question") if one.get("sessionID") == conversation]
    if answered.startswith("que") and answered not in [one["id"] for one in asked]:
        return True
    if not asked or answered.startswith("msg"):
        return False
    request, count = asked[0]["id"], len(asked[0]["questions"])
    door = _door(run.private)
    _keep(run.private, replace(door, sent={**door.sent, message: request}))
    lines = text.splitlines()
    answers = [[line] for line in lines] if len(lines) == count else [[text], *([] for _ in range(count - 1))]
    await _asked(server, "POST", f"/question/{request}/reply", {"answers": answers})
    return True


async def _asked(server: Loopback, method: str, path: str, body: Any = None) -> Answer:
    answer = await server.call(method, path, body)
    if not answer.ok:
        raise Temporary(f"opencode answered {method} {path} with {answer.status}")
    return answer


async def _listed(server: Loopback, path: str) -> list[dict[str, Any]]:
    data = (await _asked(server, "GET", path)).data
    return data if isinstance(data, list) else []


def _message_id() -> str:
    """An id as OpenCode makes them: they grow with time."""
    return f"msg_{(int(time.time() * 1000) * 0x1000) % (1 << 48):012x}{secrets.token_hex(7)}"


def _shown(part: Mapping[str, Any]) -> str:
    """A tool's use, as text for a terminal."""
    state = part.get("state") or {}
    title = state.get("title") or json.dumps(state.get("input") or {}, ensure_ascii=False)
    output = str(state.get("output") or state.get("error") or "").strip()
    return f"{part.get('tool')}: {title}" + (f"\n{output}" if output else "")
