"""Files of another form, translated key by key: claude-squad, Vibe Kanban, cli-agent-orchestrator.

What asked nobody before it did anything (`auto_yes`, `yolo`, `dangerously_…`) becomes `auto-edit` here, and that is told: `full` is a
person's own word.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Any

from agent_orchestrator.config.importers.key_report import Brought
from agent_orchestrator.config.yaml_tree import Items, Section, plain

_PROGRAMS = {
    "claude": "claude-code",
    "codex": "codex",
    "aider": "aider",
    "gemini": "gemini",
    "opencode": "opencode",
    "goose": "goose",
    "copilot": "copilot",
    "cursor-agent": "cursor",
    "kimi": "kimicode",
    "amp": "amp",
    "auggie": "auggie",
    "crush": "crush",
    "droid": "droid",
    "qwen": "qwen",
}
"""A CLI's name → the agent that runs it."""
_PROVIDERS = {
    "claude_code": "claude-code",
    "codex": "codex",
    "codex_cli": "codex",
    "gemini_cli": "gemini",
    "kimi_cli": "kimicode",
    "copilot_cli": "copilot",
    "opencode_cli": "opencode",
    "cursor_cli": "cursor",
}
_EXECUTORS = {
    "CLAUDE_CODE": "claude-code",
    "CODEX": "codex",
    "GEMINI": "gemini",
    "OPENCODE": "opencode",
    "AMP": "amp",
    "QWEN_CODE": "qwen",
    "CURSOR_AGENT": "cursor",
    "CURSOR": "cursor",
    "COPILOT": "copilot",
    "DROID": "droid",
}
_UNASKED = ("dangerously_skip_permissions", "dangerously_allow_all", "yolo", "force", "allow_all_tools", "auto_approve")
_ASKS_LESS = (
    "asked nobody there: here edits and the project's own commands go unasked; permissions: full is your own word"
)
_MODES = {"plan": "plan", "default": "default", "acceptEdits": "auto-edit", "bypassPermissions": "auto-edit"}


def claude_squad(tree: Section) -> Brought:
    """`~/.claude-squad/config.json`."""
    brought = Brought("claude-squad")
    for key, value in tree.items():
        if key == "default_program":
            _program(brought, key, str(value), "defaults.agent")
        elif key == "profiles" and isinstance(value, Items):
            for number, one in enumerate(value):
                if isinstance(one, Section):
                    _named_program(brought, f"{key}.{number}", one)
        elif key == "branch_prefix":
            brought.taken(key, "project.branchPattern", f"{value}{{{{name}}}}", "a pattern of the session's name")
        elif key == "auto_yes":
            _unasked(brought, key, value, "defaults.agentConfig.permissions")
        elif key == "daemon_poll_interval":
            brought.dropped(key, "nothing is polled: agents tell by themselves")
        elif key == "worktree_pattern":
            brought.dropped(key, "write projects.ID.worktreeDir: the folder in which workspaces are")
        else:
            brought.dropped(key, "there is no such key here")
    return brought


def vibe_kanban(tree: Section) -> Brought:
    """`profiles.json`: variants of its executors."""
    brought = Brought("vibe-kanban")
    for executor, variants in tree["executors"].items():
        tool = _EXECUTORS.get(executor)
        if tool is None or not isinstance(variants, Section):
            brought.dropped(f"executors.{executor}", "no agent here runs it; see docs/agents/command.md")
            continue
        for variant, holder in variants.items():
            settings = holder.get(executor) if isinstance(holder, Section) else None
            if isinstance(settings, Section):
                _variant(brought, executor, variant, tool, settings)
    for key in tree:
        if key != "executors":
            brought.dropped(key, "there is no such key here")
    return brought


def _variant(brought: Brought, executor: str, variant: str, tool: str, settings: Section) -> None:
    """A profile of its own for each variant but the first, which is the agent itself."""
    name = tool if variant == "DEFAULT" else f"{tool}-{variant.lower().replace('_', '-')}"
    key, to = f"executors.{executor}.{variant}", f"agents.{name}"
    rows = len(brought.entries)
    for option, value in settings.items():
        here = f"{key}.{option}"
        if option == "model" and value != "auto":
            brought.taken(here, f"{to}.model", str(value))
        elif option == "append_prompt" and value:
            brought.taken(here, f"{to}.rules", str(value))
        elif option == "env" and isinstance(value, Section):
            brought.taken(here, f"{to}.env", {each: str(one) for each, one in value.items()})
        elif (option == "plan" and value) or (option, value) == ("mode", "plan"):
            brought.taken(here, f"{to}.permissions", "plan")
        elif option == "approvals" and value:
            brought.taken(here, f"{to}.permissions", "default")
        elif option in _UNASKED:
            _unasked(brought, here, value, f"{to}.permissions")
        elif value is not None:
            brought.dropped(here, "there is no such option here")
    if any(entry.to for entry in brought.entries[rows:]):
        brought.config["agents"][name].setdefault("tool", tool)


def profile(head: Section, body: str, stem: str) -> Brought:
    """A profile of cli-agent-orchestrator: Markdown with a head."""
    brought = Brought("cli-agent-orchestrator")
    name = _slug(str(head.get("name") or stem))
    to = f"agents.{name}"
    brought.config = {"agents": {name: {}}}
    for key, value in head.items():
        if key == "name":
            brought.taken(key, to, brought.config["agents"][name], "" if name == value else f"{value} is {name} here")
        elif key == "provider" and str(value) in _PROVIDERS:
            brought.taken(key, f"{to}.tool", _PROVIDERS[str(value)])
        elif key == "provider":
            brought.dropped(key, f"no agent here runs {value}: the project's own is taken; see docs/agents/command.md")
        elif key == "model":
            brought.taken(key, f"{to}.model", str(value))
        elif key == "skills" and isinstance(value, Items):
            brought.taken(key, f"{to}.skills", [str(one) for one in value])
        elif key == "role" and value == "reviewer":
            brought.taken(key, f"{to}.role", "reviewer")
        elif key == "role" and value == "supervisor":
            brought.dropped(key, "the agent that coordinates others is orchestrator.coordinator: ao orchestrator")
        elif key == "role":
            brought.dropped(key, "a worker is what every profile is")
        elif key == "permissionMode" and str(value) in _MODES:
            note = _ASKS_LESS if value == "bypassPermissions" else ""
            brought.taken(key, f"{to}.permissions", _MODES[str(value)], note)
        else:
            brought.dropped(key, _WHY_NOT.get(key, "there is no such key here"))
    words = "\n\n".join(part for part in (str(head.get("prompt") or "").strip(), body) if part)
    if words:
        brought.taken("(text)", f"{to}.rules", words)
    return brought


_WHY_NOT = {
    "description": "a profile needs none: skills and filters say what it is good at",
    "prompt": "part of the rules",
    "allowedTools": "what an agent may do without asking is `permissions`",
    "mcpServers": "agents read their own: see docs/mcp.md",
    "tags": "write filters.labels: the issues that it is to take",
    "capabilities": "write skills",
}


def _unasked(brought: Brought, key: str, value: Any, to: str) -> None:
    if value:
        brought.taken(key, to, "auto-edit", _ASKS_LESS)
    else:
        brought.dropped(key, "asking is the default")


def _named_program(brought: Brought, key: str, one: Section) -> None:
    name = _slug(str(one.get("name") or ""))
    if name and one.get("program"):
        _program(brought, f"{key}.program", str(one["program"]), f"agents.{name}.tool")
    for other in one:
        if other not in ("name", "program"):
            brought.dropped(f"{key}.{other}", "there is no such key here")


def _program(brought: Brought, key: str, command: str, to: str) -> None:
    """A command line: a known CLI becomes its agent, `--model` a setting; any other an agent of tool `command`."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    name = PurePath(words[0]).name if words else ""
    tool, rest = _PROGRAMS.get(name), words[1:]
    where = to.removesuffix(".agent").removesuffix(".tool")
    settings = f"{where}.agentConfig" if to == "defaults.agent" else where
    if tool is None:
        profile = _slug(name) or "imported"
        place = f"agents.{profile}" if to == "defaults.agent" else where
        brought.taken(key, f"{place}.command", words, "any CLI is an agent of tool command")
        brought.taken(key, f"{place}.prompt", "paste", "its task is typed into its terminal")
        if to == "defaults.agent":
            brought.taken(key, to, profile, f"{command} is the profile {profile}")
        return
    brought.taken(key, to, tool, "" if tool == name else f"{name} is {tool} here")
    model = re.fullmatch(r"(?:--model|-m)(?:[ =])(\S+)", " ".join(rest[:2])) if rest else None
    if model:
        brought.taken(key, f"{settings}.model", model[1], "its --model")
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    if rest:
        brought.dropped(key, f"its arguments {plain(shlex.join(rest))}: set what they mean in the configuration")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
