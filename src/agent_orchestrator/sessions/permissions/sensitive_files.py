"""Which files of a workspace run by themselves, or say what may run: by their names. Pure.

Listed is what needs no other permission to take effect: an agent's own settings, what an editor or a shell runs when a folder is
opened, what runs at a commit, and what makes a folder a repository of its own, whose configuration names programs. What only the
project's own commands run (tests, build files) is not: those have their own permission.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import pairwise

_AGENTS = (
    ".agents .aider.conf.yml .amp .augment .claude .claude.json .codex .copilot .crush .crush.json crush.json .cursor .gemini .goose"
    " .goosehints .kimi .kimi-code .mcp.json .opencode opencode.json opencode.jsonc .qwen bunfig.toml"
    " .npmrc node_modules"
)
"""`bunfig.toml` names what each program that is built with Bun runs first; `npx`, by which agents start their MCP servers, takes programs
from `node_modules` and options, code to be loaded among them, from `.npmrc`."""
_OPENED = (
    ".devcontainer .devcontainer.json .envrc .exrc .idea .mise .mise.toml .mise.local.toml mise.toml mise.local.toml .nvim.lua .nvimrc"
    " .vimrc .vscode .zed"
)
_COMMITS = (
    ".captainhook captainhook.json .cargo-husky .git-hooks .githooks hk.pkl .husky husky.config.js husky.config.cjs .lefthook"
    " .lefthook-local .overcommit.yml .local-overcommit.yml .pre-commit-config.yaml .pre-commit-config.yml prek.toml .rusty-hook.toml"
)
_GIT = ".gitmodules .lfsconfig head"
"""`HEAD` is what no repository can do without: who may not make one, makes no repository of a folder."""
_NAMES = frozenset(f"{_AGENTS} {_OPENED} {_COMMITS} {_GIT}".split())
_ENDINGS = re.compile(
    r"\.?(?:lefthook|lefthook-local|simple-git-hooks|grumphp)\.[a-z.]+|\.(?:huskyrc|lintstagedrc|commitlintrc)(?:\.[a-z.]+)?"
    r"|(?:lint-staged|commitlint)\.config\.[a-z]+|\.env(?:\.(?:development|production|test))?(?:\.local)?"
)
"""Agents take variables from `.env` at their start: folders that are trusted, commands that are run by themselves."""
_BELOW = frozenset(
    (
        *((".github", name) for name in ("hooks", "extensions", "mcp.json", "copilot")),
        (".config", "mise"),
    )
)


def steers(path: str, hooks: Collection[str] = ()) -> bool:
    """Does a file of this name, anywhere in the workspace, say what is run, or what an agent may? `hooks`: folders of hooks in it."""
    parts = _parts(path)
    if any(part in _NAMES or _ENDINGS.fullmatch(part) for part in parts):
        return True
    if not _BELOW.isdisjoint(pairwise(parts)):
        return True
    own = (_parts(folder) for folder in hooks)
    return any(folder and parts[: len(folder)] == folder for folder in own)


def holds(path: str, hooks: Collection[str] = ()) -> bool:
    """Would a file that steers be one by its place in this folder? A folder that is moved here brings such files by other names."""
    parts = _parts(path)
    if not parts:
        return False
    return any(parts[-1] == above for above, _ in _BELOW) or any(
        _parts(folder)[: len(parts)] == parts for folder in hooks
    )


def _parts(path: str) -> list[str]:
    return [part for part in path.casefold().split("/") if part not in ("", ".")]


def hook_folders(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The folder of the workspace from which a session's Git runs hooks, if it is one, by its variables."""
    count = variables.get("GIT_CONFIG_COUNT") or "0"
    named = [
        variables.get(f"GIT_CONFIG_VALUE_{number}") or ""
        for number in range(int(count) if count.isdecimal() and len(count) < 5 else 0)
        if (variables.get(f"GIT_CONFIG_KEY_{number}") or "").casefold() == "core.hookspath"
    ]
    return tuple(folder for folder in named[-1:] if folder and not folder.startswith(("/", "~")))
