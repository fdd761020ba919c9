"""`command`: any CLI as an agent, described in YAML alone (docs/agents/command.md)."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.text import templates
from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.protocols import AgentContext, AgentLaunch, Found, Kept, ScreenRules

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

PROMPT_WAYS = ("argument", "file", "stdin", "paste")
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
LONGEST_ARGUMENT = 128 * 1024 - 1
"""Linux's bound for one argument, its final zero left out."""

_OPTIONAL = re.compile(r"\{\{[^{}]+ if [^{}]+\}\}")
"""A word that is there only on a condition, `{{'--yolo' if permissions == 'full'}}`: it is left out when it comes to nothing."""

_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "<<"})


class Command:
    """Starts the command that its configuration describes."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._command = _argv(config, "command")
        if not self._command:
            raise UsageError(
                "the command agent has no `command`", "for example command: [my-cli, --task, '{{prompt}}']"
            )
        self._resume = _argv(config, "resume")
        self._env = _env(config)
        self._model = config.get("model")
        self._rules_before = _rules(config)
        self._keeps = _keeps(config)
        self._install = str(config.get("install") or "")
        self.screen = _screen(config)
        self.interrupt_keys = (
            ("Escape",) if self.screen.busy and "esc" in self.screen.busy.pattern.lower() else ("C-c",)
        )
        self.permission_keys = PERMISSION_KEYS | _permission_keys(config)
        self._way = _way(config, self._command, self.screen)

    async def detect(self) -> Found | None:
        """Is the program there? Its version is not asked: no option for that is known."""
        program = self._command[0]
        if "/" in program or "{{" in program:
            return Found(program)  # told only in a workspace
        path = self._host.which(program)
        return Found(path) if path else None

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """What its configuration names."""
        del private
        home = Path(env.get("HOME") or Path.home())
        return Kept(tuple(home / path.removeprefix("~/") for path in self._keeps))

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """The command with its variables filled in; on a restore, `resume` if there is one, with the message it is for."""
        resumes = context.resume is not None and bool(self._resume)
        command = self._resume if resumes else self._command
        if resumes:
            prompt = task = context.message
        else:
            prompt = cli.opening(context) if self._rules_before else context.prompt
            task = context.task or context.prompt
        argv = _filled(command, _variables(context, self._model) | {"prompt": _plain(prompt), "task": _plain(task)})
        if self._way == "argument" and not _names(command, "prompt", "task") and prompt:
            argv.append(_as_argument(prompt))
        too_long = max(len(argument.encode(errors="surrogateescape")) for argument in argv)
        if too_long > LONGEST_ARGUMENT:
            raise UsageError(
                f"an argument of {too_long} bytes is too long for a command", "set prompt: file, stdin or paste"
            )
        argv[0] = self._program(argv[0], context)
        return AgentLaunch(
            tuple(argv),
            self._env,
            stdin=context.task_file if self._way == "stdin" and (prompt or not resumes) else None,
            paste=prompt or None if self._way == "paste" else None,
        )

    def _program(self, program: str, context: AgentContext) -> str:
        if program.startswith("~/"):
            program = str(Path(context.env.get("HOME") or Path.home()) / program[2:])
        if "/" in program:
            path = context.workspace / program
            if not path.is_file():
                raise Missing(
                    f"the agent's program {path} is not there", "correct `command` in the agent's configuration"
                )
            found = self._host.which(str(path))
            if found is None:
                raise Missing(f"the agent's program {path} may not be run", f"chmod +x {path}")
            return found
        searched = context.env.get("PATH")
        found = self._host.which(program, searched)
        if found is None:
            remedy = f"install it: {self._install}" if self._install else f"install {program}, or name its path"
            raise cli.not_found(program, remedy, searched)
        return found


def _variables(context: AgentContext, model: object) -> dict[str, object]:
    return {
        "system": _plain(context.system),
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


def _filled(command: list[str], variables: Mapping[str, object]) -> list[str]:
    argv: list[str] = []
    for position, element in enumerate(command):
        rendered = templates.render(element, variables)
        if not rendered and _OPTIONAL.fullmatch(element):
            continue
        if element in ("{{prompt}}", "{{task}}"):
            if not rendered and position and not command[position - 1].startswith("-"):
                continue  # no task yet: a positional prompt is left out, an option keeps its (empty) value
            rendered = _as_argument(rendered)
        argv.append(rendered)
    return argv


def _plain(text: str) -> str:
    return text.replace("\0", "")


def _as_argument(prompt: str) -> str:
    """A prompt that begins with a dash must not be taken for an option."""
    return cli.as_argument(_plain(prompt))


def _names(command: list[str], *variables: str) -> bool:
    return any(not templates.variables_of(element).isdisjoint(variables) for element in command)


def _rules(config: Mapping[str, Any]) -> bool:
    """Whether the first message begins with how to work here; unsaid: the task alone."""
    rules = config.get("rules")
    if rules not in (None, "before"):
        raise UsageError(f"`rules` of the command agent is {rules!r}", "write rules: before, or leave it out")
    return rules == "before"


def _argv(config: Mapping[str, Any], key: str) -> list[str]:
    value = config.get(key) or []
    words = _split(key, value) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str | int | float) for word in words):
        raise UsageError(
            f"`{key}` of the command agent is not a list of words", f"for example {key}: [my-cli, --task, x]"
        )
    words = [re.sub(r"\{\{\s*(\w+)\s*\}\}", r"{{\1}}", str(word)) for word in words]
    for word in words:
        templates.check(word, VARIABLES)
    return words


def _split(key: str, text: str) -> list[str]:
    try:
        words = shlex.split(re.sub(r"\{\{\s*(\w+)\s*\}\}", r"{{\1}}", text))
    except ValueError as error:
        raise UsageError(f"`{key}` of the command agent, {text!r}, cannot be split: {error}") from None
    for word in words:
        if word in _SHELL_WORDS or re.fullmatch(r"\$\w+", word):
            remedy = f"no shell reads it: write {key}: [sh, -c, '…'], or {{{{taskFile}}}} and the like for variables"
            raise UsageError(f"`{key}` of the command agent has shell syntax, {word!r}", remedy)
    return words


def _env(config: Mapping[str, Any]) -> dict[str, str]:
    env = config.get("env") or {}
    if not isinstance(env, Mapping):
        raise UsageError("`env` of the command agent is not a map of names to values")
    return {str(name): str(value).lower() if isinstance(value, bool) else str(value) for name, value in env.items()}


def _keeps(config: Mapping[str, Any]) -> tuple[str, ...]:
    given = config.get("keeps") or []
    if not isinstance(given, list | tuple) or not all(
        isinstance(path, str) and path.startswith(("~/", "/")) for path in given
    ):
        raise UsageError(f"`keeps` of the command agent is {given!r}", "for example keeps: [~/.my-cli]")
    return tuple(given)


def _screen(config: Mapping[str, Any]) -> ScreenRules:
    given = config.get("screen") or {}
    keys = ("ready", "busy", "blocked")
    if not isinstance(given, Mapping):
        raise UsageError("`screen` of the command agent is not a map", f"its keys are {', '.join(keys)}")
    for key in given:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, 1)
            raise UsageError(
                f"`screen` has no key {key!r}", f"did you mean {near[0]}?" if near else f"known: {', '.join(keys)}"
            )
    return ScreenRules(**{key: _pattern(key, pattern) for key, pattern in given.items() if pattern is not None})


def _permission_keys(config: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    given = config.get("keys") or {}
    known = ("allow", "always", "deny")
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise UsageError(f"`keys` of the command agent is {given!r}", f"its keys are {', '.join(known)}")
    pressed = {name: (keys,) if isinstance(keys, str) else tuple(keys) for name, keys in given.items()}
    if not all(isinstance(key, str) and key for keys in pressed.values() for key in keys):
        raise UsageError(f"`keys` of the command agent is {given!r}", "for example keys: {allow: [y, Enter]}")
    return pressed


def _pattern(key: str, pattern: object) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise UsageError(f"`screen.{key}` is not text: {pattern!r}")
    # A screen keeps no blanks at the end of a line, or fills the line with them: "> $" means both.
    tolerant = re.sub(r"(?<!\\) +\$", " *$", pattern)
    try:
        return re.compile(tolerant, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"`screen.{key}` is no regular expression: {pattern!r}: {error}") from None


def _way(config: Mapping[str, Any], command: list[str], screen: ScreenRules) -> str:
    """How the prompt reaches the program; unsaid: as the command itself tells, else it is run exactly as written."""
    way = config.get("prompt")
    if way is not None:
        if way not in PROMPT_WAYS:
            near = difflib.get_close_matches(str(way), PROMPT_WAYS, 1)
            remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(PROMPT_WAYS)}"
            raise UsageError(f"`prompt` of the command agent is {way!r}", remedy)
        return str(way)
    if _names(command, "prompt"):
        return "argument"
    return "paste" if screen.ready and not _names(command, "taskFile") else "file"
