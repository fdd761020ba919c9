"""The plugin `command`: any CLI as an agent, described in YAML alone (docs/agents/command.md)."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.text import templates
from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    InstalledAgent,
    ScreenRules,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

PROMPT_DELIVERIES = ("argument", "file", "stdin", "paste")
VARIABLES = [
    "prompt",
    "task",
    "system",
    "taskFile",
    "workspacePath",
    "branch",
    "base",
    "session",
    "project",
    "model",
    "permissions",
    "mode",
    "conversation",
]
PERMISSION_KEYS = {"allow": ("y", "Enter"), "deny": ("n", "Enter")}
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The number of bytes that Linux allows for one argument, without its final zero byte."""

_CONDITIONAL_WORD = re.compile(r"\{\{[^{}]+ if [^{}]+\}\}")
"""A conditional word such as `{{'--yolo' if permissions == 'full'}}`, which is left out when its value is empty."""

_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "<<"})


class CommandAgent(Agent):
    """The agent plugin that starts the command in its configuration."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._command = _read_command(config, "command")
        if not self._command:
            raise UsageError(
                "the command agent has no `command`", "for example command: [my-cli, --task, '{{prompt}}']"
            )
        self._resume = _read_command(config, "resume")
        self._environment = _environment(config)
        self._model = config.get("model")
        self._has_rules_before = _read_rules(config)
        self._kept_folders = _kept_folders(config)
        self._install = str(config.get("install") or "")
        self.screen = _screen_rules(config)
        self.interrupt_keys = (
            ("Escape",) if self.screen.busy and "esc" in self.screen.busy.pattern.lower() else ("C-c",)
        )
        self.permission_keys = PERMISSION_KEYS | _permission_keys(config)
        self._prompt_delivery = _prompt_delivery(config, self._command, self.screen)

    async def detect(self) -> InstalledAgent | None:
        """Return the program, without a version, since no option for that is known; None if it is not installed."""
        program = self._command[0]
        if "/" in program or "{{" in program:
            return InstalledAgent(program)  # it can only be checked in a workspace
        path = self._host.which(program)
        return InstalledAgent(path) if path else None

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return the folders that the configuration names."""
        del private
        home = Path(env.get("HOME") or Path.home())
        return AgentState(tuple(home / path.removeprefix("~/") for path in self._kept_folders))

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command with its variables filled in; on a restore, `resume` if it is configured, with the message of the
        restore.
        """
        is_resumed = context.resume is not None and bool(self._resume)
        command = self._resume if is_resumed else self._command
        if is_resumed:
            prompt = task = context.message
        else:
            prompt = agent_cli.first_message(context) if self._has_rules_before else context.prompt
            task = context.task or context.prompt
        argv = _fill(
            command, _variables(context, self._model) | {"prompt": _without_nulls(prompt), "task": _without_nulls(task)}
        )
        if self._prompt_delivery == "argument" and not _uses_variable(command, "prompt", "task") and prompt:
            argv.append(_as_argument(prompt))
        longest = max(len(argument.encode(errors="surrogateescape")) for argument in argv)
        if longest > MAX_ARGUMENT_BYTES:
            raise UsageError(
                f"an argument of {longest} bytes is too long for a command", "set prompt: file, stdin or paste"
            )
        argv[0] = self._program(argv[0], context)
        return AgentLaunch(
            tuple(argv),
            self._environment,
            stdin=context.task_file if self._prompt_delivery == "stdin" and (prompt or not is_resumed) else None,
            paste=prompt or None if self._prompt_delivery == "paste" else None,
        )

    def _program(self, program: str, context: AgentContext) -> str:
        """Return the program's full path; raise `Missing` if it is not there or may not be run."""
        if program.startswith("~/"):
            program = str(Path(context.env.get("HOME") or Path.home()) / program[2:])
        if "/" in program:
            path = context.workspace / program
            if not path.is_file():
                raise Missing(
                    f"the agent's program {path} is not there", "correct `command` in the agent's configuration"
                )
            executable = self._host.which(str(path))
            if executable is None:
                raise Missing(f"the agent's program {path} may not be run", f"chmod +x {path}")
            return executable
        search_path = context.env.get("PATH")
        executable = self._host.which(program, search_path)
        if executable is None:
            remedy = f"install it: {self._install}" if self._install else f"install {program}, or name its path"
            raise agent_cli.not_found(program, remedy, search_path)
        return executable


def _variables(context: AgentContext, model: object) -> dict[str, object]:
    """Return the values of the variables in a command."""
    return {
        "system": _without_nulls(context.system),
        "taskFile": str(context.task_file),
        "workspacePath": str(context.workspace),
        "branch": context.branch,
        "base": context.base,
        "session": context.session,
        "project": context.project,
        "model": context.model or model,
        "permissions": context.permissions,
        "mode": context.mode,
        "conversation": context.resume,
    }


def _fill(command: list[str], variables: Mapping[str, object]) -> list[str]:
    """Return the command with its variables filled in; empty optional words are left out."""
    argv: list[str] = []
    for position, element in enumerate(command):
        rendered = templates.render(element, variables)
        if not rendered and _CONDITIONAL_WORD.fullmatch(element):
            continue
        if element in ("{{prompt}}", "{{task}}"):
            if not rendered and position and not command[position - 1].startswith("-"):
                continue  # no task yet: a positional prompt is left out, an option keeps its (empty) value
            rendered = _as_argument(rendered)
        argv.append(rendered)
    return argv


def _without_nulls(text: str) -> str:
    """Return the text without null bytes, which no argument can contain."""
    return text.replace("\0", "")


def _as_argument(prompt: str) -> str:
    """Return a prompt with a space in front if it begins with a dash, so that it is not taken for an option."""
    return agent_cli.as_argument(_without_nulls(prompt))


def _uses_variable(command: list[str], *variables: str) -> bool:
    """Return whether the command uses one of these variables."""
    return any(not templates.variables_of(element).isdisjoint(variables) for element in command)


def _read_rules(config: Mapping[str, Any]) -> bool:
    """Return whether the first message begins with the rules; by default it is the task alone."""
    rules = config.get("rules")
    if rules not in (None, "before"):
        raise UsageError(f"`rules` of the command agent is {rules!r}", "write rules: before, or leave it out")
    return rules == "before"


def _read_command(config: Mapping[str, Any], key: str) -> list[str]:
    """Return a command from the configuration as words; raise `UsageError` if it is none or uses unknown variables."""
    value = config.get(key) or []
    words = _split_command(key, value) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str | int | float) for word in words):
        raise UsageError(
            f"`{key}` of the command agent is not a list of words", f"for example {key}: [my-cli, --task, x]"
        )
    words = [re.sub(r"\{\{\s*(\w+)\s*\}\}", r"{{\1}}", str(word)) for word in words]
    for word in words:
        templates.check(word, VARIABLES)
    return words


def _split_command(key: str, text: str) -> list[str]:
    """Return a command line as words; raise `UsageError` for shell syntax, since no shell reads it."""
    try:
        words = shlex.split(re.sub(r"\{\{\s*(\w+)\s*\}\}", r"{{\1}}", text))
    except ValueError as error:
        raise UsageError(f"`{key}` of the command agent, {text!r}, cannot be split: {error}") from None
    for word in words:
        if word in _SHELL_WORDS or re.fullmatch(r"\$\w+", word):
            remedy = f"no shell reads it: write {key}: [sh, -c, '…'], or {{{{taskFile}}}} and the like for variables"
            raise UsageError(f"`{key}` of the command agent has shell syntax, {word!r}", remedy)
    return words


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment from the configuration."""
    env = config.get("env") or {}
    if not isinstance(env, Mapping):
        raise UsageError("`env` of the command agent is not a map of names to values")
    return {str(name): str(value).lower() if isinstance(value, bool) else str(value) for name, value in env.items()}


def _kept_folders(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the folders from the configuration; raise `UsageError` if one is not absolute or below `~/`."""
    paths = config.get("keeps") or []
    if not isinstance(paths, list | tuple) or not all(
        isinstance(path, str) and path.startswith(("~/", "/")) for path in paths
    ):
        raise UsageError(f"`keeps` of the command agent is {paths!r}", "for example keeps: [~/.my-cli]")
    return tuple(paths)


def _screen_rules(config: Mapping[str, Any]) -> ScreenRules:
    """Return the screen rules from the configuration."""
    patterns = config.get("screen") or {}
    keys = ("ready", "busy", "blocked")
    if not isinstance(patterns, Mapping):
        raise UsageError("`screen` of the command agent is not a map", f"its keys are {', '.join(keys)}")
    for key in patterns:
        if key not in keys:
            suggestions = difflib.get_close_matches(str(key), keys, 1)
            raise UsageError(
                f"`screen` has no key {key!r}",
                f"did you mean {suggestions[0]}?" if suggestions else f"known: {', '.join(keys)}",
            )
    return ScreenRules(
        **{key: _compile_pattern(key, pattern) for key, pattern in patterns.items() if pattern is not None}
    )


def _permission_keys(config: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the keys from the configuration for each decision."""
    decisions = config.get("keys") or {}
    decision_names = ("allow", "always", "deny")
    if not isinstance(decisions, Mapping) or not set(decisions) <= set(decision_names):
        raise UsageError(f"`keys` of the command agent is {decisions!r}", f"its keys are {', '.join(decision_names)}")
    keys_by_decision = {name: (keys,) if isinstance(keys, str) else tuple(keys) for name, keys in decisions.items()}
    if not all(isinstance(key, str) and key for keys in keys_by_decision.values() for key in keys):
        raise UsageError(f"`keys` of the command agent is {decisions!r}", "for example keys: {allow: [y, Enter]}")
    return keys_by_decision


def _compile_pattern(key: str, pattern: object) -> re.Pattern[str]:
    """Return a compiled pattern of the screen rules."""
    if not isinstance(pattern, str):
        raise UsageError(f"`screen.{key}` is not text: {pattern!r}")
    # A screen drops blanks at the end of a line or fills the line with them; "> $" must match both.
    adapted = re.sub(r"(?<!\\) +\$", " *$", pattern)
    try:
        return re.compile(adapted, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"`screen.{key}` is no regular expression: {pattern!r}: {error}") from None


def _prompt_delivery(config: Mapping[str, Any], command: list[str], screen: ScreenRules) -> str:
    """Return how the prompt reaches the program; by default through the command's `{{prompt}}`, else by paste or through the
    task's file.
    """
    delivery = config.get("prompt")
    if delivery is not None:
        if delivery not in PROMPT_DELIVERIES:
            suggestions = difflib.get_close_matches(str(delivery), PROMPT_DELIVERIES, 1)
            remedy = f"did you mean {suggestions[0]}?" if suggestions else f"one of {', '.join(PROMPT_DELIVERIES)}"
            raise UsageError(f"`prompt` of the command agent is {delivery!r}", remedy)
        return str(delivery)
    if _uses_variable(command, "prompt"):
        return "argument"
    return "paste" if screen.ready and not _uses_variable(command, "taskFile") else "file"
