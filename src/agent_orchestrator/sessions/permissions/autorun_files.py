"""The files of a workspace that are run automatically, or that decide what is run, by their names. Pure.

Listed is what takes effect without another permission: an agent's own settings, what an editor or a shell runs when a folder is opened,
what runs at a commit, and what makes a folder a repository, whose configuration names programs. Files that only the project's own commands
run (tests, build files) are not listed: those commands have their own permission.
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
"""Settings of agents and of what they start: `bunfig.toml` names what each program built with Bun runs first; `npx`, by which
agents start their MCP servers, takes programs from `node_modules` and options, including code to load, from `.npmrc`.
"""
_RUN_ON_OPEN = (
    ".devcontainer .devcontainer.json .envrc .exrc .idea .mise .mise.toml .mise.local.toml mise.toml mise.local.toml .nvim.lua .nvimrc"
    " .vimrc .vscode .zed"
)
"""Files that editors and shells run when a folder is opened."""
_RUN_ON_COMMIT = (
    ".captainhook captainhook.json .cargo-husky .git-hooks .githooks hk.pkl .husky husky.config.js husky.config.cjs .lefthook"
    " .lefthook-local .overcommit.yml .local-overcommit.yml .pre-commit-config.yaml .pre-commit-config.yml prek.toml .rusty-hook.toml"
)
"""Files that decide what runs at a commit."""
_GIT = ".gitmodules .lfsconfig head"
"""Git's own files. Every repository needs `HEAD`: without permission to write it, no folder can be made a repository."""
_NAMES = frozenset(f"{_AGENTS} {_RUN_ON_OPEN} {_RUN_ON_COMMIT} {_GIT}".split())
_ENDINGS = re.compile(
    r"\.?(?:lefthook|lefthook-local|simple-git-hooks|grumphp)\.[a-z.]+|\.(?:huskyrc|lintstagedrc|commitlintrc)(?:\.[a-z.]+)?"
    r"|(?:lint-staged|commitlint)\.config\.[a-z]+|\.env(?:\.(?:development|production|test))?(?:\.local)?"
)
"""Agents read variables from `.env` when they start: folders to trust, commands to run without asking."""
_BELOW = frozenset(
    (
        *((".github", name) for name in ("hooks", "extensions", "mcp.json", "copilot")),
        (".config", "mise"),
    )
)
"""Names that are sensitive only below this folder."""


def is_sensitive(path: str, hooks: Collection[str] = ()) -> bool:
    """Return whether a file of this name, anywhere in the workspace, decides what is run or what an agent may do.

    `hooks` are folders of Git hooks in the workspace.
    """
    parts = _path_parts(path)
    if any(part in _NAMES or _ENDINGS.fullmatch(part) for part in parts):
        return True
    if not _BELOW.isdisjoint(pairwise(parts)):
        return True
    hook_paths = (_path_parts(folder) for folder in hooks)
    return any(folder and parts[: len(folder)] == folder for folder in hook_paths)


def can_hold_sensitive_files(path: str, hooks: Collection[str] = ()) -> bool:
    """Return whether files could become sensitive by being in this folder: a moved folder brings them under other names."""
    parts = _path_parts(path)
    if not parts:
        return False
    return any(parts[-1] == above for above, _ in _BELOW) or any(
        _path_parts(folder)[: len(parts)] == parts for folder in hooks
    )


def _path_parts(path: str) -> list[str]:
    """Return the parts of a path in lower case."""
    return [part for part in path.casefold().split("/") if part not in ("", ".")]


def hook_folders(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folder of the workspace from which a session's Git runs hooks, if it has one, from Git's variables."""
    count = variables.get("GIT_CONFIG_COUNT") or "0"
    folders = [
        variables.get(f"GIT_CONFIG_VALUE_{number}") or ""
        for number in range(int(count) if count.isdecimal() and len(count) < 5 else 0)
        if (variables.get(f"GIT_CONFIG_KEY_{number}") or "").casefold() == "core.hookspath"
    ]
    return tuple(folder for folder in folders[-1:] if folder and not folder.startswith(("/", "~")))
