"""The plugin `claude-code`: runs Anthropic's Claude Code and reads its status record, transcript and hooks
(docs/agents/claude-code.md).
"""

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

from agent_orchestrator.base.files.safe import UnsafePath, create_and_open_folder, open_regular_file
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.errors import Conflict, UsageError
from agent_orchestrator.plugins.agents.claude_code import dialogs, headless_output
from agent_orchestrator.plugins.agents.claude_code.listener import (
    HOOK_EVENTS,
    RECORDS_FOLDER,
    ClaudeListener,
    projects_folder,
    put_back_message,
    transcript_path,
)
from agent_orchestrator.plugins.agents.claude_code.startup_dialogs import answer_dialogs
from agent_orchestrator.plugins.agents.claude_code.state_files import config_folder, state_file, update_copy
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.journals import escape_for_glob
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    InstalledAgent,
    Mount,
    Permission,
    ReadyToType,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
    TurnCommand,
    TurnLine,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install it: npm install -g @anthropic-ai/claude-code"

MODES = {"default": "default", "plan": "plan", "auto-edit": "acceptEdits", "full": "bypassPermissions"}
"""Claude Code's permission mode for each of ours."""

SHELL = "Bash"
_PATTERN_CHARACTERS = re.compile(r"[*?\[\]{}\n]")
"""Characters that would make a pattern of a rule: such a command is asked for, and may be allowed by a rule of ours."""
EDITS = ("Edit", "Write", "NotebookEdit")
MCP_SERVER_NAME = "ao"
"""The name of our MCP server in Claude Code; its tools are `mcp__ao__…`."""
SETTINGS = ("settings.json", "settings.local.json", "CLAUDE.md", "agents", "commands", "hooks", "plugins", "skills")
"""What Claude Code takes commands from in its folder; a sandboxed one may only read it."""
DIALOG_TIMEOUT = 3.0
DIALOG_SETTLE_SECONDS = 0.4
DIALOG_POLL_SECONDS = 0.1
HOOK_TIMEOUT = 10
BACKSLASH = "\\"
MAX_TRANSCRIPT_BYTES = 512 << 20


class ClaudeCode(Agent):
    """The agent plugin that runs `claude` in a terminal."""

    screen = ScreenRules(ready=re.compile(r"^❯", re.MULTILINE))
    interrupt_keys = ("Space", "Escape")
    """With an empty prompt Escape would put the current message back into it; a space in the prompt prevents that."""
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._extra_arguments = _extra_arguments(config)

    async def detect(self) -> InstalledAgent | None:
        """Return where `claude` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "claude")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command for a new conversation with an id of ours, or for the old one; rules are the system prompt, the
        task is the first message.
        """
        program = agent_cli.find_program(self._host, "claude", context, INSTALL_REMEDY)
        folder = config_folder(context.env)
        await run_in_own_thread(answer_dialogs, context)
        hooks = f"claude-hooks-{uuid.uuid4().hex[:12]}.jsonl"
        conversation, conversation_options = await run_in_own_thread(_choose_conversation, context, folder)
        argv = [program, *self._options(context, _write_settings(context, hooks)), *conversation_options]
        is_new = "--session-id" in conversation_options
        prompt = (context.task or context.prompt) if is_new else context.message
        plugin_data = {"folder": str(folder), "hooks": hooks, "launched": datetime.now(UTC).isoformat()}
        is_too_long = len(prompt.encode(errors="replace")) > agent_cli.MAX_ARGUMENT_BYTES
        if is_too_long and not is_new:
            return AgentLaunch(
                tuple(argv), _environment(context), paste=prompt, conversation=conversation, plugin_data=plugin_data
            )
        if prompt:
            plugin_data["prompt"] = "1"
            argv += ["--", self.escape_input(agent_cli.shorten_to_argument(prompt, context))]
        return AgentLaunch(
            tuple(argv), _environment(context), waits=not prompt, conversation=conversation, plugin_data=plugin_data
        )

    def conversation_files(self, env: Mapping[str, str], workspace: Path, conversation: str) -> tuple[Path, ...]:
        """Return the path of the transcript."""
        return (transcript_path(config_folder(env), workspace, conversation),)

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return Claude Code's folder as writable, its settings as read-only, and the session's own folder of status records.

        A copy of its state file is kept in that folder, since the one in the user's home could not be replaced from a sandbox.
        Status records of earlier launches are removed.
        """
        folder, records = config_folder(env), private / RECORDS_FOLDER
        for old_record in records.glob("*.json"):
            with contextlib.suppress(OSError):
                old_record.unlink()
        if not env.get("CLAUDE_CONFIG_DIR"):
            update_copy(state_file(env), folder / ".claude.json")
        return AgentState(
            writable=(folder, *private.glob("claude-hooks-*.jsonl")),
            fixed=tuple(folder / name for name in SETTINGS),
            own=(Mount(records, folder / "sessions", writable=True),),
            env={"CLAUDE_CONFIG_DIR": str(folder)},
        )

    def _options(self, context: AgentContext, settings: Path) -> list[str]:
        """Return the options of every launch."""
        mode = MODES.get(context.permissions, "default")
        model = context.model or self._model
        return [
            *("--settings", str(settings), "--permission-mode", mode),
            *(("--model", str(model)) if model else ()),
            *(("--mcp-config", str(_write_mcp(context))) if context.mcp else ()),
            *_system_prompt_options(context),
            *self._extra_arguments,
        ]

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command `claude -p`, with the prompt on standard input; what would need a person's answer is denied."""
        program = agent_cli.find_program(self._host, "claude", context, INSTALL_REMEDY)
        _, conversation_options = _choose_conversation(
            replace(context, resume=conversation), config_folder(context.env)
        )
        argv = (
            *(program, "-p", "--output-format", "stream-json", "--verbose"),
            *self._options(context, _write_settings(context)),
            *(("--json-schema", context.schema) if context.schema else ()),
            *conversation_options,
        )
        return TurnCommand(argv, _environment(context), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """Parse one line of the output stream."""
        return headless_output.parse_line(line)

    def escape_input(self, text: str) -> str:
        """Return the text as it must be typed: a leading `!` would run a shell command, and Enter after a backslash begins a
        new line; a space prevents both.
        """
        return f"{' ' if text.startswith('!') else ''}{text}{' ' if text.endswith(BACKSLASH) else ''}"

    async def deliver(self, run: RunningLaunch, message: str, text: str, *, interrupt: bool) -> ReadyToType | None:
        """Return None, so that the message is typed, or the keys that first remove what Escape put back into the prompt: both
        would be joined.
        """
        del message, text
        old_message = "" if interrupt else put_back_message(run, Path(run.plugin_data["folder"]))
        if old_message and dialogs.is_put_back(dialogs.prompt_text(await run.screen()), old_message):
            return ReadyToType(("C-c",))
        return None

    def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports from record, transcript and hooks, and API errors from the screen."""
        return ClaudeListener(run, Path(run.plugin_data["folder"])).listen()

    async def answer(
        self, run: RunningLaunch, permission: Permission, decision: str, text: str
    ) -> Sequence[str] | None:
        """Return the key of the dialog, if it is the one of this request, after `DIALOG_SETTLE_SECONDS`: it ignores keys right
        after it is drawn.
        """
        del text  # the text is sent as the next message
        shown_for = 0.0
        for _ in range(int(DIALOG_TIMEOUT / DIALOG_POLL_SECONDS)):
            dialog = dialogs.parse_dialog(await run.screen())
            keys = dialogs.key_for(dialog, permission.command, decision) if dialog else None
            if keys and shown_for >= DIALOG_SETTLE_SECONDS:
                return keys
            shown_for = shown_for + DIALOG_POLL_SECONDS if keys else 0.0
            await asyncio.sleep(DIALOG_POLL_SECONDS)
        return None


# -- the conversation --------------------------------------------------------------------------------------------------


def _choose_conversation(context: AgentContext, folder: Path) -> tuple[str | None, list[str]]:
    """Return the conversation's id, or None for the latest one, and the options that begin or continue it."""
    projects = projects_folder(folder, context.workspace)
    if context.resume and _ensure_conversation(context.resume, folder, projects):
        return context.resume, ["--resume", context.resume]
    if context.resume == "" and any(projects.glob("*.jsonl")):
        return None, ["--continue"]
    conversation = context.resume if context.resume and _is_uuid(context.resume) else str(uuid.uuid4())
    return conversation, ["--session-id", conversation]


def _ensure_conversation(conversation: str, folder: Path, projects: Path) -> bool:
    """Return whether this workspace has the conversation; one begun in another folder is copied and stays there too. Raise
    `Conflict` if that fails.
    """
    name = f"{Path(conversation).name}.jsonl"
    if (projects / name).exists():
        return True
    transcript = next(iter(sorted((folder / "projects").glob(f"*/{escape_for_glob(name)}"))), None)
    if transcript is None:
        return False
    try:
        _copy_transcript(transcript, folder, projects / name)
    except OSError as error:
        remedy = f"copy {transcript} to {projects} yourself"
        raise Conflict(f"the conversation {conversation} cannot be brought here: {error}", remedy) from None
    return True


def _copy_transcript(source_path: Path, folder: Path, target: Path) -> None:
    """Copy a transcript without following a symlink at either end: agents write in these folders, and a symlink could lead elsewhere."""
    with (
        open_regular_file(source_path) as source_file,
        create_and_open_folder(folder, target.relative_to(folder).parts[:-1]) as target_folder,
    ):
        if os.fstat(source_file.fileno()).st_size > MAX_TRANSCRIPT_BYTES:
            raise UnsafePath(f"{source_path} is too long")
        with os.fdopen(
            os.open(target.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=target_folder), "wb"
        ) as target_file:
            try:
                shutil.copyfileobj(source_file, target_file)
            except OSError:
                os.unlink(target.name, dir_fd=target_folder)
                raise


def _is_uuid(text: str) -> bool:
    """Return whether the text is a UUID in its usual form."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _system_prompt_options(context: AgentContext) -> list[str]:
    """Return the options for the system prompt, at every launch, since it is not part of the conversation."""
    if not context.system:
        return []
    if len(context.system.encode(errors="replace")) <= agent_cli.MAX_ARGUMENT_BYTES:
        return ["--append-system-prompt", context.system.replace("\0", "")]
    file = context.private / "claude-system-prompt.md"
    file.write_text(context.system, encoding="utf-8", errors="replace")
    return ["--append-system-prompt-file", str(file)]


def _environment(context: AgentContext) -> dict[str, str]:
    """Return the environment: the to-do list switched on, which newer models leave out, and for `full` as root `IS_SANDBOX`, without
    which Claude Code refuses it.
    """
    env = {} if "CLAUDE_CODE_ENABLE_TODO_TOOLS" in context.env else {"CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}
    if context.permissions == "full" and hasattr(os, "geteuid") and os.geteuid() == 0:
        env["IS_SANDBOX"] = "1"
    return env


def _extra_arguments(config: Mapping[str, Any]) -> list[str]:
    """Return the extra arguments from the configuration; raise `UsageError` if they are no list of words."""
    args = config.get("args") or []
    if not isinstance(args, list | tuple) or not all(isinstance(word, str | int | float) for word in args):
        raise UsageError("`args` of claude-code is not a list of words", "for example args: [--effort, high]")
    return [str(word) for word in args]


# -- settings ----------------------------------------------------------------------------------------------------------


def _write_settings(context: AgentContext, hooks: str = "") -> Path:
    """Write the permissions and hooks of this session, which add to the user's settings; remove hook files of earlier launches."""
    deny_rules = {} if context.edits else {"deny": list(EDITS)}
    settings: dict[str, Any] = {"permissions": {"allow": permission_rules(context), **deny_rules}}
    if hooks:
        for old_file in context.private.glob("claude-hooks-*.jsonl"):
            old_file.unlink(missing_ok=True)
        (context.private / hooks).touch(mode=0o600)
        append = f"cat >> {shlex.quote(str(context.private / hooks))}"
        hook = {"type": "command", "command": append, "timeout": HOOK_TIMEOUT}
        settings["hooks"] = {name: [{"hooks": [hook]}] for name in HOOK_EVENTS}
    elif context.permissions == "auto-edit":  # headless: no person can be asked
        hook_command = (
            sys.executable,
            "-I",
            "-m",
            "agent_orchestrator.sessions.permissions.hook",
            str(context.workspace),
            *context.commands,
        )
        hook = {"type": "command", "command": shlex.join(hook_command), "timeout": HOOK_TIMEOUT}
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
    """Write the entry for our MCP server, which adds to the user's; the token is read from the environment and not written to
    the file.
    """
    server: dict[str, Any] = {"type": "http", "url": context.mcp, "headers": {"Authorization": "Bearer ${AO_TOKEN}"}}
    if context.mcp.startswith("https:"):
        env = {name: f"${{{name}}}" for name in agent_cli.MCP_BRIDGE_VARIABLES}
        server = {
            "type": "stdio",
            "command": agent_cli.MCP_BRIDGE_COMMAND[0],
            "args": list(agent_cli.MCP_BRIDGE_COMMAND[1:]),
            "env": env,
        }
    if not context.edits:
        # A read-only session works through these tools only, so they are loaded before the first turn.
        server["alwaysLoad"] = True
    file = context.private / "claude-mcp.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"mcpServers": {MCP_SERVER_NAME: server}}, indent=2), encoding="utf-8")
    return file


def permission_rules(context: AgentContext) -> list[str]:
    """Return what needs no permission, as rules of Claude Code's settings."""
    allow_rules = [f"Read(/{_escape(str(context.task_file))})", *([f"mcp__{MCP_SERVER_NAME}"] if context.mcp else [])]
    allowed = [*context.allowed, *(Permission(SHELL, command) for command in agent_cli.own_commands(context))]
    allow_rules += [
        _as_rule(permission, context) for permission in allowed if not _PATTERN_CHARACTERS.search(permission.command)
    ]
    return list(dict.fromkeys(allow_rules))


def _as_rule(permission: Permission, context: AgentContext) -> str:
    """Return a permission as a rule of Claude Code."""
    if not permission.command:
        return permission.tool
    if permission.tool in EDITS:
        return f"Edit(/{_escape(str(context.workspace / permission.command))})"
    return f"{permission.tool}({_escape(permission.command)})"


def _escape(text: str) -> str:
    """Return the text with parentheses and backslashes escaped, since parentheses delimit a rule's content."""
    return re.sub(r"([\\()])", r"\\\1", text)
