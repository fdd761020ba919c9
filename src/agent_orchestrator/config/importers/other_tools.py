"""Translate files of another format key by key: claude-squad, Vibe Kanban, cli-agent-orchestrator.

Settings by which an agent acted without asking (`auto_yes`, `yolo`, `dangerously_…`) become `auto-edit` here, with a note: only a
person may set `full`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Any

from agent_orchestrator.config.importers.key_report import ImportedConfig
from agent_orchestrator.config.yaml_tree import Items, Section, without_positions

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
"""The agent for each CLI, by program name."""
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
_UNATTENDED_OPTIONS = (
    "dangerously_skip_permissions",
    "dangerously_allow_all",
    "yolo",
    "force",
    "allow_all_tools",
    "auto_approve",
)
_ASKS_LESS_NOTE = (
    "asked nobody there: here edits and the project's own commands go unasked; permissions: full is your own word"
)
_MODES = {"plan": "plan", "default": "default", "acceptEdits": "auto-edit", "bypassPermissions": "auto-edit"}


def convert_claude_squad(tree: Section) -> ImportedConfig:
    """Convert `~/.claude-squad/config.json`."""
    brought = ImportedConfig("claude-squad")
    for key, value in tree.items():
        if key == "default_program":
            _add_program(brought, key, str(value), "defaults.agent")
        elif key == "profiles" and isinstance(value, Items):
            for number, entry in enumerate(value):
                if isinstance(entry, Section):
                    _add_named_program(brought, f"{key}.{number}", entry)
        elif key == "branch_prefix":
            brought.set_key(key, "project.branchPattern", f"{value}{{{{name}}}}", "a pattern of the session's name")
        elif key == "auto_yes":
            _add_unattended(brought, key, value, "defaults.agentConfig.permissions")
        elif key == "daemon_poll_interval":
            brought.report_dropped(key, "nothing is polled: agents tell by themselves")
        elif key == "worktree_pattern":
            brought.report_dropped(key, "write projects.ID.worktreeDir: the folder in which workspaces are")
        else:
            brought.report_dropped(key, "there is no such key here")
    return brought


def convert_vibe_kanban(tree: Section) -> ImportedConfig:
    """Convert `profiles.json`: variants of its executors."""
    brought = ImportedConfig("vibe-kanban")
    for executor, variants in tree["executors"].items():
        tool = _EXECUTORS.get(executor)
        if tool is None or not isinstance(variants, Section):
            brought.report_dropped(f"executors.{executor}", "no agent here runs it; see docs/agents/command.md")
            continue
        for variant, holder in variants.items():
            settings = holder.get(executor) if isinstance(holder, Section) else None
            if isinstance(settings, Section):
                _add_variant(brought, executor, variant, tool, settings)
    for key in tree:
        if key != "executors":
            brought.report_dropped(key, "there is no such key here")
    return brought


def _add_variant(brought: ImportedConfig, executor: str, variant: str, tool: str, settings: Section) -> None:
    """Add a profile for each variant; the `DEFAULT` one is the agent itself."""
    name = tool if variant == "DEFAULT" else f"{tool}-{variant.lower().replace('_', '-')}"
    key, to = f"executors.{executor}.{variant}", f"agents.{name}"
    rows = len(brought.entries)
    for option, value in settings.items():
        option_key = f"{key}.{option}"
        if option == "model" and value != "auto":
            brought.set_key(option_key, f"{to}.model", str(value))
        elif option == "append_prompt" and value:
            brought.set_key(option_key, f"{to}.rules", str(value))
        elif option == "env" and isinstance(value, Section):
            brought.set_key(option_key, f"{to}.env", {variable: str(text) for variable, text in value.items()})
        elif (option == "plan" and value) or (option, value) == ("mode", "plan"):
            brought.set_key(option_key, f"{to}.permissions", "plan")
        elif option == "approvals" and value:
            brought.set_key(option_key, f"{to}.permissions", "default")
        elif option in _UNATTENDED_OPTIONS:
            _add_unattended(brought, option_key, value, f"{to}.permissions")
        elif value is not None:
            brought.report_dropped(option_key, "there is no such option here")
    if any(entry.to for entry in brought.entries[rows:]):
        brought.config["agents"][name].setdefault("tool", tool)


def convert_cli_agent_orchestrator(head: Section, body: str, stem: str) -> ImportedConfig:
    """Convert a profile of cli-agent-orchestrator: Markdown with a YAML header."""
    brought = ImportedConfig("cli-agent-orchestrator")
    name = _slug(str(head.get("name") or stem))
    to = f"agents.{name}"
    brought.config = {"agents": {name: {}}}
    for key, value in head.items():
        if key == "name":
            brought.set_key(key, to, brought.config["agents"][name], "" if name == value else f"{value} is {name} here")
        elif key == "provider" and str(value) in _PROVIDERS:
            brought.set_key(key, f"{to}.tool", _PROVIDERS[str(value)])
        elif key == "provider":
            brought.report_dropped(
                key, f"no agent here runs {value}: the project's own is taken; see docs/agents/command.md"
            )
        elif key == "model":
            brought.set_key(key, f"{to}.model", str(value))
        elif key == "skills" and isinstance(value, Items):
            brought.set_key(key, f"{to}.skills", [str(skill) for skill in value])
        elif key == "role" and value == "reviewer":
            brought.set_key(key, f"{to}.role", "reviewer")
        elif key == "role" and value == "supervisor":
            brought.report_dropped(
                key, "the agent that coordinates others is orchestrator.coordinator: ao orchestrator"
            )
        elif key == "role":
            brought.report_dropped(key, "a worker is what every profile is")
        elif key == "permissionMode" and str(value) in _MODES:
            note = _ASKS_LESS_NOTE if value == "bypassPermissions" else ""
            brought.set_key(key, f"{to}.permissions", _MODES[str(value)], note)
        else:
            brought.report_dropped(key, _DROP_REASONS.get(key, "there is no such key here"))
    rules = "\n\n".join(part for part in (str(head.get("prompt") or "").strip(), body) if part)
    if rules:
        brought.set_key("(text)", f"{to}.rules", rules)
    return brought


_DROP_REASONS = {
    "description": "a profile needs none: skills and filters say what it is good at",
    "prompt": "part of the rules",
    "allowedTools": "what an agent may do without asking is `permissions`",
    "mcpServers": "agents read their own: see docs/mcp.md",
    "tags": "write filters.labels: the issues that it is to take",
    "capabilities": "write skills",
}


def _add_unattended(brought: ImportedConfig, key: str, value: Any, to: str) -> None:
    if value:
        brought.set_key(key, to, "auto-edit", _ASKS_LESS_NOTE)
    else:
        brought.report_dropped(key, "asking is the default")


def _add_named_program(brought: ImportedConfig, key: str, entry: Section) -> None:
    name = _slug(str(entry.get("name") or ""))
    if name and entry.get("program"):
        _add_program(brought, f"{key}.program", str(entry["program"]), f"agents.{name}.tool")
    for key_name in entry:
        if key_name not in ("name", "program"):
            brought.report_dropped(f"{key}.{key_name}", "there is no such key here")


def _add_program(brought: ImportedConfig, key: str, command: str, to: str) -> None:
    """Convert a command line: a known CLI becomes its agent, `--model` a setting; any other becomes an agent with tool `command`."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    name = PurePath(words[0]).name if words else ""
    tool, rest = _PROGRAMS.get(name), words[1:]
    section = to.removesuffix(".agent").removesuffix(".tool")
    settings = f"{section}.agentConfig" if to == "defaults.agent" else section
    if tool is None:
        profile = _slug(name) or "imported"
        profile_section = f"agents.{profile}" if to == "defaults.agent" else section
        brought.set_key(key, f"{profile_section}.command", words, "any CLI is an agent of tool command")
        brought.set_key(key, f"{profile_section}.prompt", "paste", "its task is typed into its terminal")
        if to == "defaults.agent":
            brought.set_key(key, to, profile, f"{command} is the profile {profile}")
        return
    brought.set_key(key, to, tool, "" if tool == name else f"{name} is {tool} here")
    model = re.fullmatch(r"(?:--model|-m)(?:[ =])(\S+)", " ".join(rest[:2])) if rest else None
    if model:
        brought.set_key(key, f"{settings}.model", model[1], "its --model")
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    if rest:
        brought.report_dropped(
            key, f"its arguments {without_positions(shlex.join(rest))}: set what they mean in the configuration"
        )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
