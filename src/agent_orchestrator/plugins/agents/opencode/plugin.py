"""The plugin `opencode`: runs OpenCode's terminal and reads, prompts and answers it through the HTTP server that it runs on
loopback.

Look here when an OpenCode session does not start, receives no messages, or its permission requests are not answered
(docs/agents/opencode.md).
"""

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
"""The ports to choose from: below the range that systems use for outgoing connections, so a free port is still free when the
server binds it.
"""
REPLIES = {"allow": "once", "always": "once", "deny": "reject"}

MCP = "ao"
"""The name of our MCP server in OpenCode; its tools are `ao_…`."""
FIRST_WITHIN = 2.0
"""Seconds to wait for the first event: a server that is starting may accept the connection and stay silent, but greets a second
connection at once.
"""
SILENCE = 30.0
"""Seconds without an event after which the event stream counts as broken; it has a heartbeat every ten seconds."""
STARTING_PAUSE = 0.3
STORED_WITHIN = 5.0
SHOWN_TRIES = 10
RECENT = 50
KEPT = 100
"""The number of messages whose ids are remembered across a restart of the agent."""

_READ_ONLY_TOOLS = ("glob", "grep", "list", "lsp", "question", "skill", "task", "todoread", "todowrite")
_HEADLESS_SHELL_RULES = {
    "git status": "allow",
    "git add *": "allow",
    "git commit -m *": "allow",
    "git commit -am *": "allow",
}
"""Shell rules for headless `auto-edit`, where no person can be asked: without them nothing could be committed."""
_RISKY_ARGUMENTS = {
    **{
        f"git {word} *{mark}*": "ask"
        for word in ("add", "commit")
        for mark in ("--path", ">", "<", "`", "$", "\\", ";", "|")
    },
    **{f"git add *{mark}*": "ask" for mark in ('"', "'", "--")},
}
"""Arguments that make one of these commands do more than stage or commit; such a command needs permission."""
_READ_RULES = {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}

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
"""The configuration files that OpenCode takes commands from; a sandboxed OpenCode may only read them."""
_START_PAGE = re.compile(r"^\W*Ask anything", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Door:
    """How to reach the server of one launch, and which messages were delivered there.

    It is kept in the session's private folder: no other user may read the password, and the data must survive a crash of the
    daemon.
    """

    launch: str = ""
    port: int = 0
    password: str = ""
    conversation: str | None = None
    sent: Mapping[str, str] = field(default_factory=dict)
    """OpenCode's ids of our messages, chosen before delivery, so that a second attempt is the same message."""
    adopts: str = ""
    """The id of a conversation that was begun elsewhere; a copy of it is to be continued here."""
    interrupting: str = ""
    """The id of the message for which a turn is being stopped: the end of that turn is not reported as an interruption."""


class OpenCode:
    """The agent plugin that runs `opencode` with its server on a port chosen for the launch."""

    screen = ScreenRules()
    interrupt_keys = ("Escape", "Escape")
    """The keys for a person, pressed one after the other; this plugin stops turns and answers permission requests through the server."""
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._last_text: dict[str, str] = {}

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Return OpenCode's folders: login, conversations and state are writable; of the configuration folder, `SETTINGS` are
        read-only.
        """
        del private
        home = Path(env.get("HOME") or Path.home())
        data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
        state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state") / "opencode"
        config = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        folders = cli.kept(config, *SETTINGS)
        return replace(folders, writable=(*folders.writable, data, state))

    async def detect(self) -> Found | None:
        """Return where `opencode` is installed and its version, or None."""
        return await cli.detect(self._host, "opencode")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command that starts the terminal and its server; the task is delivered through the server once that answers."""
        door = _create_door(context)
        _save_door(context.private, door)
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
                **_environment(context, model),
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
        """Return the path of `opencode`; raise `Missing` if it is not installed."""
        return cli.program(self._host, "opencode", context, INSTALL)

    def _model_of(self, context: AgentContext) -> str | None:
        """Return the model as `provider/model`, or None for OpenCode's default; raise `UsageError` for a name without a provider."""
        model = context.model or self._model
        if model and "/" not in str(model):
            raise UsageError(
                f"opencode knows no model {str(model)!r}", "name it provider/model; see them: opencode models"
            )
        return str(model) if model else None

    # -- listening -----------------------------------------------------------------------------------------------------

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Yield reports from the server's events; after each connect, first those for what was missed."""
        listener = Ears(
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
                        if listener.conversation is None and (conversation := _door(run.private).conversation):
                            for heard in listener.begun({"id": conversation}):
                                yield heard
                        if event.get("type") == "server.connected":
                            async for heard in _missed(server, listener):
                                yield heard
                        for heard in listener.hear(event):
                            yield heard
                        if event.get("type") == "session.created":
                            _save_door(run.private, replace(_door(run.private), conversation=listener.conversation))
                        if event.get("type") in ("server.connected", "session.status"):
                            await _resend_stranded(server, run, listener)
            if not await run.changes.next(STARTING_PAUSE):
                return

    # -- messages and answers -------------------------------------------------------------------------------------------

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Deliver the text as the answer to an open question, or as a message whose id is the same at every attempt; return
        `Held` on failure.
        """
        server = _server(run)
        try:
            conversation = _conversation(run) or await _ensure_conversation(server, run)
            await _show_conversation(server, run, conversation)
            if await _reply_to_question(server, run, conversation, message, text):
                return Delivered()
            if interrupt:
                _save_door(run.private, replace(_door(run.private), interrupting=message))
                await _request(server, "POST", f"/session/{conversation}/abort")
            return await _send(server, run, conversation, message, text)
        except Temporary:
            return Held("opencode does not answer yet")

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """Answer a permission request through the server, by its id; 404 means that it was already answered in the terminal."""
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
        """Return the command `opencode run`, which reads its prompt from standard input; what is not permitted is denied
        without asking.
        """
        argv = [self._program(context), "run", "--format", "json"]
        if model := self._model_of(context):
            argv.append(f"--model={model}")  # as a separate argument a name that begins with a dash would be an option
        if context.permissions == "plan":
            argv += ["--agent", "plan"]
        if conversation:
            argv += ["--session", conversation]
        return Turn(tuple(argv), _environment(context, None), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """Parse one event of `opencode run --format json`; a line of another kind is shown as it is."""
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
                self._last_text[session] = str(part.get("text") or "")
                return TurnLine(self._last_text[session])
            case "tool_use":
                return TurnLine(_render_tool_use(part))
            case "step_finish":
                usage_report = usage(part)
                if part.get("reason") == "tool-calls":
                    return TurnLine("", (usage_report,) if usage_report else ())
                turn_report = r.TurnReport(self._last_text.pop(session, ""))
                return TurnLine("", (usage_report, turn_report) if usage_report else (turn_report,))
            case "error":
                report = failure(event.get("error") or {})
                return TurnLine(f"error: {getattr(report, 'detail', '') or 'limit reached'}", (report,))
        return TurnLine()


# -- environment and configuration -------------------------------------------------------------------------------------


def _environment(context: AgentContext, model: str | None) -> dict[str, str]:
    """Return the environment variables that set the system prompt, the model and the permissions; the user's own configuration
    stays as it is.
    """
    content: dict[str, Any] = {}
    if user_content := context.env.get("OPENCODE_CONFIG_CONTENT"):
        try:
            content = dict(json.loads(user_content))
        except (ValueError, TypeError):
            raise UsageError("OPENCODE_CONFIG_CONTENT is not a JSON object", "correct it, or unset it") from None
    if context.system:
        rules = context.private / "opencode-rules.md"
        rules.write_text(context.system, encoding="utf-8")
        content["instructions"] = [*content.get("instructions", ()), str(rules)]
    if model:
        content["model"] = model
    if context.mcp:
        content["mcp"] = {**content.get("mcp", {}), MCP: _mcp_server(context)}
    env = {
        "OPENCODE_PERMISSION": json.dumps(_permissions(context)),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "PWD": str(context.workspace),  # OpenCode works in this folder, not in the one it is started in
    }
    return {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(content)} if content else env


def _mcp_server(context: AgentContext) -> dict[str, Any]:
    """Return the entry for our MCP server; OpenCode inserts the token from the environment."""
    if context.mcp.startswith("https:"):
        variables = {name: f"{{env:{name}}}" for name in cli.BRIDGE_VARIABLES}
        return {"type": "local", "command": list(cli.BRIDGE), "environment": variables, "enabled": True}
    headers = {"Authorization": "Bearer {env:AO_TOKEN}"}
    return {"type": "remote", "url": context.mcp, "headers": headers, "oauth": False, "enabled": True}


def _permissions(context: AgentContext) -> dict[str, Any]:
    """Return permission rules in OpenCode's order, where the last match holds.

    They are merged behind the user's rules, and a key that the user has as well keeps the user's position; so each key is
    spelled as a pattern that no user writes.
    """
    if context.permissions == "full" and context.edits:
        return {"**": "allow"}
    rules: dict[str, dict[str, str]] = {
        "read": dict(_READ_RULES),
        **{tool: {"*": "allow"} for tool in _READ_ONLY_TOOLS},
        "edit": {"*": {"plan": "deny", "auto-edit": "allow"}.get(context.permissions, "ask")},
        "bash": {
            "*": "ask",
            **(
                {**_HEADLESS_SHELL_RULES, **_RISKY_ARGUMENTS}
                if context.mode == "headless" and context.permissions == "auto-edit"
                else {}
            ),
            **{command: "allow" for command in cli.own_commands(context) if not re.search(r"[*?]", command)},
        },
    }
    for permission in context.allowed:
        if not re.search(r"[*?]", permission.command):
            for pattern in (permission.command,) if permission.tool == "bash" else permission.command.split(", "):
                rules.setdefault(permission.tool, {"*": "ask"})[pattern or "*"] = "allow"
    if context.permissions == "plan" or not context.edits:
        rules["edit"] = {"*": "deny"}
    mcp_rules = {f"{MCP}_*": "allow"} if context.mcp else {}
    return {"**": "ask", **{f"{tool[:-1]}?": rule for tool, rule in rules.items()}, **mcp_rules}


def _create_door(context: AgentContext) -> _Door:
    """Return the port and password for this launch; the same ones if it was called for this launch before."""
    door, launch = _door(context.private), context.env.get("AO_SPOOL", "")
    if door.port and launch and door.launch == launch:
        return door
    new_door, adopted = _Door(launch, _free_port(), secrets.token_urlsafe(24)), door.adopts
    if context.resume is None:
        return new_door
    if context.resume and context.resume != door.conversation:
        door, adopted = new_door, context.resume
    return replace(new_door, conversation=door.conversation, adopts=adopted, sent=dict(list(door.sent.items())[-KEPT:]))


def _free_port() -> int:
    """Return a free port; raise `Temporary` if 100 random ones are taken."""
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
    """Read how to reach the server from the session's private folder; an empty `_Door` if there is none."""
    try:
        return _Door(**json.loads((private / "opencode.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _Door()


def _save_door(private: Path, door: _Door) -> None:
    """Save how to reach the server, replacing the file in one step."""
    file = private / "opencode.json"
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(asdict(door)), encoding="utf-8")
    new.replace(file)


def _conversation(run: AgentRun) -> str | None:
    """Return the id of this session's conversation, or None before it has begun."""
    door = _door(run.private)
    return run.conversation if run.conversation != door.adopts else door.conversation


def _server(run: AgentRun) -> Loopback:
    """Return the client for the server of this launch."""
    return Loopback(int(run.memo["port"]), USER, _door(run.private).password)


# -- calls to the server ------------------------------------------------------------------------------------------------


async def _missed(server: Loopback, listener: Ears) -> AsyncIterator[Heard]:
    """Yield reports from the server's records for the time before its events were read."""
    conversation = listener.conversation
    if conversation is None:
        for heard in listener.status({}, missed=True):
            yield heard
        return
    for session in await _family(server, conversation):
        if session["id"] != conversation:
            listener.adopt(str(session["id"]))
        for message in await _messages(server, str(session["id"]), listener.floor(str(session["id"]))):
            for heard in listener.message(message.get("info") or {}):
                yield heard
            for part in message.get("parts") or ():
                listener.part(part)
    for heard in listener.todo(await _request_list(server, f"/session/{conversation}/todo")):
        yield heard
    status = (await _request(server, "GET", "/session/status")).data or {}
    for heard in listener.status(status.get(conversation) or {}, missed=True):
        yield heard
    for path, read_request in (("/permission", listener.permission), ("/question", listener.question)):
        for request in await _request_list(server, path):
            for heard in read_request(request):
                yield heard


async def _family(server: Loopback, conversation: str) -> list[dict[str, Any]]:
    """Return the conversation and those of its subagents, at any depth."""
    sessions: list[dict[str, Any]] = [{"id": conversation}]
    for session in sessions:
        sessions += await _request_list(server, f"/session/{session['id']}/children")
    return sessions


async def _messages(server: Loopback, session: str, floor: int) -> list[dict[str, Any]]:
    """Return at least all messages of a conversation that are newer than `floor` (milliseconds); the newest `RECENT` if they
    reach back far enough.
    """
    path = f"/session/{session}/message"
    recent = await _request_list(server, f"{path}?limit={RECENT}")
    if len(recent) < RECENT or recent[0]["info"]["time"]["created"] < floor:
        return recent
    return await _request_list(server, path)


async def _ensure_conversation(server: Loopback, run: AgentRun) -> str:
    """Return the conversation for the first message, creating or copying it once; raise `Temporary` while the terminal is empty."""
    door = _door(run.private)
    if door.conversation is None:
        if not (await run.screen()).strip():
            raise Temporary("opencode's terminal shows nothing yet")
        response = await (
            _copy_conversation(server, run, door.adopts) if door.adopts else _request(server, "POST", "/session", {})
        )
        door = replace(_door(run.private), conversation=str(response.data["id"]))
        _save_door(run.private, door)
    assert door.conversation is not None
    return door.conversation


async def _copy_conversation(server: Loopback, run: AgentRun, conversation: str) -> Answer:
    """Copy a conversation that was held in another folder and move the copy to this workspace; the original would go on working there."""
    copy = await _request(server, "POST", f"/session/{conversation}/fork", {})
    move = {"sessionID": copy.data["id"], "destination": {"directory": str(run.workspace)}}
    await _request(server, "POST", "/experimental/control-plane/move-session", move)
    moved = await _request(server, "GET", f"/session/{copy.data['id']}")
    if Path(moved.data["directory"]) != run.workspace:
        raise Temporary(f"opencode left the conversation in {moved.data['directory']}")
    return moved


async def _show_conversation(server: Loopback, run: AgentRun, conversation: str) -> None:
    """Make the terminal show this conversation if it shows its start page, as it does at first."""
    for _ in range(SHOWN_TRIES):
        if not _START_PAGE.search(await run.screen()):
            return
        await _request(server, "POST", "/tui/select-session", {"sessionID": conversation})
        await asyncio.sleep(0.3)


async def _send(server: Loopback, run: AgentRun, conversation: str, message: str, text: str) -> Delivery:
    """Send a message unless it is stored already, and wait until it is stored."""
    door = _door(run.private)
    message_id = door.sent.get(message)
    if message_id is None:
        message_id = _message_id()
        _save_door(run.private, replace(door, sent={**door.sent, message: message_id}))
    elif await _is_stored(server, conversation, message_id):
        return Delivered()
    await _post(server, run, conversation, message_id, text)
    deadline = time.monotonic() + STORED_WITHIN
    while not await _is_stored(server, conversation, message_id):
        if time.monotonic() > deadline:
            return Held("opencode has not stored it yet")
        await asyncio.sleep(0.05)
    _save_door(run.private, replace(_door(run.private), interrupting=""))
    return Delivered()


async def _resend_stranded(server: Loopback, run: AgentRun, listener: Ears) -> None:
    """Send the newest message of ours again, under its id, that arrived while a turn was being stopped: it is in the
    conversation, but unanswered.
    """
    our_ids = _door(run.private).sent.values()
    stranded = {message_id: text for message_id, text in listener.stranded().items() if message_id in our_ids}
    if stranded and listener.conversation:
        message_id = max(stranded)
        await _post(server, run, listener.conversation, message_id, stranded[message_id])


async def _post(server: Loopback, run: AgentRun, conversation: str, message_id: str, text: str) -> None:
    """Send a message under the given id, with the agent and model of the conversation or else of the launch."""
    session = (await _request(server, "GET", f"/session/{conversation}")).data
    body: dict[str, Any] = {
        "messageID": message_id,
        "parts": [{"id": f"prt{message_id[3:]}", "type": "text", "text": text}],
    }
    if agent := session.get("agent") or run.memo.get("agent"):
        body["agent"] = agent
    if not session.get("model") and run.memo.get("model"):
        provider, _, model = run.memo["model"].partition("/")
        body["model"] = {"providerID": provider, "modelID": model}
    await _request(server, "POST", f"/session/{conversation}/prompt_async", body)


async def _is_stored(server: Loopback, conversation: str, message_id: str) -> bool:
    """Return whether the conversation has a message of this id."""
    return (await server.call("GET", f"/session/{conversation}/message/{message_id}")).ok


async def _reply_to_question(server: Loopback, run: AgentRun, conversation: str, message: str, text: str) -> bool:
    """Answer an open question with the message, and return whether it did (or had before). One line per question if the counts match."""
    delivered_id = _door(run.private).sent.get(message, "")
    questions = [
        question for question in await _request_list(server, "/question") if question.get("sessionID") == conversation
    ]
    if delivered_id.startswith("que") and delivered_id not in [question["id"] for question in questions]:
        return True
    if not questions or delivered_id.startswith("msg"):
        return False
    request, count = questions[0]["id"], len(questions[0]["questions"])
    door = _door(run.private)
    _save_door(run.private, replace(door, sent={**door.sent, message: request}))
    lines = text.splitlines()
    answers = [[line] for line in lines] if len(lines) == count else [[text], *([] for _ in range(count - 1))]
    await _request(server, "POST", f"/question/{request}/reply", {"answers": answers})
    return True


async def _request(server: Loopback, method: str, path: str, body: Any = None) -> Answer:
    """Call the server and return its answer; raise `Temporary` for an error status."""
    answer = await server.call(method, path, body)
    if not answer.ok:
        raise Temporary(f"opencode answered {method} {path} with {answer.status}")
    return answer


async def _request_list(server: Loopback, path: str) -> list[dict[str, Any]]:
    """Return the list at this path, empty if the answer is not a list."""
    data = (await _request(server, "GET", path)).data
    return data if isinstance(data, list) else []


def _message_id() -> str:
    """Return a new message id in OpenCode's format; ids grow with time."""
    return f"msg_{(int(time.time() * 1000) * 0x1000) % (1 << 48):012x}{secrets.token_hex(7)}"


def _render_tool_use(part: Mapping[str, Any]) -> str:
    """Return the use of a tool as text for a terminal."""
    state = part.get("state") or {}
    title = state.get("title") or json.dumps(state.get("input") or {}, ensure_ascii=False)
    output = str(state.get("output") or state.get("error") or "").strip()
    return f"{part.get('tool')}: {title}" + (f"\n{output}" if output else "")
