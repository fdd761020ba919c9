"""`claude-code`: Anthropic's Claude Code, heard by its status record, transcript and hooks (docs/agents/claude-code.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.files.safe import NotPlain, made_folder, plain
from agent_orchestrator.base.threads import aside
from agent_orchestrator.errors import Conflict, UsageError
from agent_orchestrator.plugins.agents.claude_code import dialogs, headless_output
from agent_orchestrator.plugins.agents.claude_code.listener import (
    HOOKS,
    RECORDS,
    Listener,
    projects_folder,
    put_back,
    transcript_of,
)
from agent_orchestrator.plugins.agents.claude_code.state_files import answer_ahead, config_folder, own_file, take_along
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.journals import in_pattern
from agent_orchestrator.protocols import (
    AgentContext,
    AgentLaunch,
    AgentRun,
    Found,
    Heard,
    Kept,
    Mount,
    Permission,
    ScreenRules,
    Turn,
    TurnLine,
    Typable,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL = "install it: npm install -g @anthropic-ai/claude-code"

MODES = {"default": "default", "plan": "plan", "auto-edit": "acceptEdits", "full": "bypassPermissions"}
"""Claude Code's permission mode for each of ours."""

SHELL = "Bash"
_WILD = re.compile(r"[*?\[\]{}\n]")
"""What would make a pattern of a rule: such a thing is asked for, and allowed by our rule."""
EDITS = ("Edit", "Write", "NotebookEdit")
MCP = "ao"
"""How it calls our MCP server; its tools are `mcp__ao__…`."""
SETTINGS = ("settings.json", "settings.local.json", "CLAUDE.md", "agents", "commands", "hooks", "plugins", "skills")
"""What of its folder it takes commands from: a sandboxed one only reads it."""
DIALOG_WITHIN = 3.0
DIALOG_SETTLES = 0.4
PAUSE = 0.1
HOOK_WITHIN = 10
BACKSLASH = "\\"
LONGEST_CONVERSATION = 512 << 20


class ClaudeCode:
    """Runs `claude` in a terminal."""

    screen = ScreenRules(ready=re.compile(r"^❯", re.MULTILINE))
    interrupt_keys = ("Space", "Escape")
    """With an empty prompt Escape would put the message that is being worked on back into it; with a blank there it does not."""
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._arguments = _arguments(config)

    async def detect(self) -> Found | None:
        """Is `claude` here, and which version?"""
        return await cli.detect(self._host, "claude")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """A new conversation with an id given ahead, or the old one continued; rules as system prompt, the task as first message."""
        program = cli.program(self._host, "claude", context, INSTALL)
        folder = config_folder(context.env)
        await aside(answer_ahead, context)
        hooks = f"claude-hooks-{uuid.uuid4().hex[:12]}.jsonl"
        conversation, continues = await aside(_conversation, context, folder)
        argv = [program, *self._options(context, _write_settings(context, hooks)), *continues]
        fresh = "--session-id" in continues
        prompt = (context.task or context.prompt) if fresh else context.message
        memo = {"folder": str(folder), "hooks": hooks, "launched": datetime.now(UTC).isoformat()}
        long = len(prompt.encode(errors="replace")) > cli.LONGEST_ARGUMENT
        if long and not fresh:
            return AgentLaunch(tuple(argv), _env(context), paste=prompt, conversation=conversation, memo=memo)
        if prompt:
            memo["prompt"] = "1"
            argv += ["--", self.typed(cli.fitting(prompt, context))]
        return AgentLaunch(tuple(argv), _env(context), waits=not prompt, conversation=conversation, memo=memo)

    def conversation_files(self, env: Mapping[str, str], workspace: Path, conversation: str) -> tuple[Path, ...]:
        """Its transcript."""
        return (transcript_of(config_folder(env), workspace, conversation),)

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its folder, and its state in there: in the user's home it could not be replaced. The user's settings are only read."""
        folder, records = config_folder(env), private / RECORDS
        for old in records.glob("*.json"):
            with contextlib.suppress(OSError):
                old.unlink()
        if not env.get("CLAUDE_CONFIG_DIR"):
            take_along(own_file(env), folder / ".claude.json")
        return Kept(
            writable=(folder, *private.glob("claude-hooks-*.jsonl")),
            fixed=tuple(folder / name for name in SETTINGS),
            own=(Mount(records, folder / "sessions", writable=True),),
            env={"CLAUDE_CONFIG_DIR": str(folder)},
        )

    def _options(self, context: AgentContext, settings: Path) -> list[str]:
        mode = MODES.get(context.permissions, "default")
        model = context.model or self._model
        return [
            *("--settings", str(settings), "--permission-mode", mode),
            *(("--model", str(model)) if model else ()),
            *(("--mcp-config", str(_write_mcp(context))) if context.mcp else ()),
            *_system_prompt(context),
            *self._arguments,
        ]

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """`claude -p`, the prompt on its standard input; whatever would be asked is denied."""
        program = cli.program(self._host, "claude", context, INSTALL)
        _, continues = _conversation(replace(context, resume=conversation), config_folder(context.env))
        argv = (
            *(program, "-p", "--output-format", "stream-json", "--verbose"),
            *self._options(context, _write_settings(context)),
            *(("--json-schema", context.schema) if context.schema else ()),
            *continues,
        )
        return Turn(argv, _env(context), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """What a line of the stream says."""
        return headless_output.read(line)

    def typed(self, text: str) -> str:
        """A leading `!` would run a shell command, and Enter behind a backslash begins a new line: a blank prevents both."""
        return f"{' ' if text.startswith('!') else ''}{text}{' ' if text.endswith(BACKSLASH) else ''}"

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Typable | None:
        """Typed; but what Escape put back into its prompt would be joined to it, and is removed first."""
        del message, text
        before = "" if interrupt else put_back(run, Path(run.memo["folder"]))
        if before and dialogs.is_put_back(dialogs.draft(await run.screen()), before):
            return Typable(("C-c",))
        return None

    def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """By its record, its transcript and its hooks; API errors by its screen."""
        return Listener(run, Path(run.memo["folder"])).listen()

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """The dialog's own key, if the dialog on the screen is the one that was asked; it takes no key the moment it is drawn."""
        del text  # it is sent as the next message
        seen = 0.0
        for _ in range(int(DIALOG_WITHIN / PAUSE)):
            dialog = dialogs.read(await run.screen())
            keys = dialogs.key_for(dialog, permission.command, decision) if dialog else None
            if keys and seen >= DIALOG_SETTLES:
                return keys
            seen = seen + PAUSE if keys else 0.0
            await asyncio.sleep(PAUSE)
        return None


# -- the conversation --------------------------------------------------------------------------------------------------


def _conversation(context: AgentContext, folder: Path) -> tuple[str | None, list[str]]:
    """The conversation's id, and the options that begin or continue it."""
    here = projects_folder(folder, context.workspace)
    if context.resume and _bring_here(context.resume, folder, here):
        return context.resume, ["--resume", context.resume]
    if context.resume == "" and any(here.glob("*.jsonl")):
        return None, ["--continue"]
    conversation = context.resume if context.resume and _is_uuid(context.resume) else str(uuid.uuid4())
    return conversation, ["--session-id", conversation]


def _bring_here(conversation: str, folder: Path, here: Path) -> bool:
    """Is there such a conversation? One begun in another folder is copied: it is continued here, and stays as it is there."""
    name = f"{Path(conversation).name}.jsonl"
    if (here / name).exists():
        return True
    found = next(iter(sorted((folder / "projects").glob(f"*/{in_pattern(name)}"))), None)
    if found is None:
        return False
    try:
        _copy(found, folder, here / name)
    except OSError as error:
        remedy = f"copy {found} to {here} yourself"
        raise Conflict(f"the conversation {conversation} cannot be brought here: {error}", remedy) from None
    return True


def _copy(found: Path, folder: Path, to: Path) -> None:
    """Agents write there: a symlink, at either end, would lead to what is not theirs."""
    with plain(found) as source, made_folder(folder, to.relative_to(folder).parts[:-1]) as here:
        if os.fstat(source.fileno()).st_size > LONGEST_CONVERSATION:
            raise NotPlain(f"{found} is too long")
        with os.fdopen(os.open(to.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=here), "wb") as copy:
            try:
                shutil.copyfileobj(source, copy)
            except OSError:
                os.unlink(to.name, dir_fd=here)
                raise


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _system_prompt(context: AgentContext) -> list[str]:
    """Given at every launch: it is not part of the conversation."""
    if not context.system:
        return []
    if len(context.system.encode(errors="replace")) <= cli.LONGEST_ARGUMENT:
        return ["--append-system-prompt", context.system.replace("\0", "")]
    file = context.private / "claude-system-prompt.md"
    file.write_text(context.system, encoding="utf-8", errors="replace")
    return ["--append-system-prompt-file", str(file)]


def _env(context: AgentContext) -> dict[str, str]:
    """Its to-do list is switched on, which newer models do without; as root it takes `full` only where it is told of a sandbox."""
    env = {} if "CLAUDE_CODE_ENABLE_TODO_TOOLS" in context.env else {"CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}
    if context.permissions == "full" and hasattr(os, "geteuid") and os.geteuid() == 0:
        env["IS_SANDBOX"] = "1"
    return env


def _arguments(config: Mapping[str, Any]) -> list[str]:
    given = config.get("args") or []
    if not isinstance(given, list | tuple) or not all(isinstance(word, str | int | float) for word in given):
        raise UsageError("`args` of claude-code is not a list of words", "for example args: [--effort, high]")
    return [str(word) for word in given]


# -- settings ----------------------------------------------------------------------------------------------------------


def _write_settings(context: AgentContext, hooks: str = "") -> Path:
    """Permissions and hooks of this session, beside the user's own settings; hook files of earlier launches go."""
    denied = {} if context.edits else {"deny": list(EDITS)}
    settings: dict[str, Any] = {"permissions": {"allow": rules(context), **denied}}
    if hooks:
        for old in context.private.glob("claude-hooks-*.jsonl"):
            old.unlink(missing_ok=True)
        (context.private / hooks).touch(mode=0o600)
        append = f"cat >> {shlex.quote(str(context.private / hooks))}"
        hook = {"type": "command", "command": append, "timeout": HOOK_WITHIN}
        settings["hooks"] = {name: [{"hooks": [hook]}] for name in HOOKS}
    elif context.permissions == "auto-edit":  # nobody can be asked
        words = (
            sys.executable,
            "-I",
            "-m",
            "agent_orchestrator.sessions.permissions.hook",
            str(context.workspace),
            *context.commands,
        )
        hook = {"type": "command", "command": shlex.join(words), "timeout": HOOK_WITHIN}
        settings["hooks"] = {"PreToolUse": [{"matcher": SHELL, "hooks": [hook]}]}
    if context.permissions == "plan":
        settings["useAutoModeDuringPlan"] = False
    if context.permissions == "full":
        settings["skipDangerousModePermissionPrompt"] = True
    file = context.private / "claude-settings.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False), encoding="utf-8")
    return file


def _write_mcp(context: AgentContext) -> Path:
    """Our MCP server, beside the user's own ones; it is opened by the token in the environment, which is not written down."""
    server: dict[str, Any] = {"type": "http", "url": context.mcp, "headers": {"Authorization": "Bearer ${AO_TOKEN}"}}
    if context.mcp.startswith("https:"):
        env = {name: f"${{{name}}}" for name in cli.BRIDGE_VARIABLES}
        server = {"type": "stdio", "command": cli.BRIDGE[0], "args": list(cli.BRIDGE[1:]), "env": env}
    if not context.edits:
        server["alwaysLoad"] = True  # it can do nothing without: its tools are there from the first turn
    file = context.private / "claude-mcp.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"mcpServers": {MCP: server}}, indent=2), encoding="utf-8")
    return file


def rules(context: AgentContext) -> list[str]:
    """What it may do without asking, as rules of Claude Code's settings."""
    found = [f"Read(/{_escaped(str(context.task_file))})", *([f"mcp__{MCP}"] if context.mcp else [])]
    allowed = [*context.allowed, *(Permission(SHELL, command) for command in cli.own_commands(context))]
    found += [_rule(permission, context) for permission in allowed if not _WILD.search(permission.command)]
    return list(dict.fromkeys(found))


def _rule(permission: Permission, context: AgentContext) -> str:
    if not permission.command:
        return permission.tool
    if permission.tool in EDITS:
        return f"Edit(/{_escaped(str(context.workspace / permission.command))})"
    return f"{permission.tool}({_escaped(permission.command)})"


def _escaped(text: str) -> str:
    """Parentheses delimit a rule's content."""
    return re.sub(r"([\\()])", r"\\\1", text)
