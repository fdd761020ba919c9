"""The environment of an agent: the login shell's, without secrets that it does not need, plus the project's and the session's.

The daemon may have been started from anywhere (a desktop, cron, inside another agent, with some project's environment activated), so its
own environment is not the one in which the user's programs are found. The login shell is run once; the caller stores the result.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent_orchestrator.base import interpreter
from agent_orchestrator.base.text.redaction import has_secret_format
from agent_orchestrator.config.learned_secrets import looks_secret
from agent_orchestrator.errors import AoError

if TYPE_CHECKING:
    from agent_orchestrator.protocols import LineCallback
    from agent_orchestrator.protocols.host import Host

SHELL_TIMEOUT = 5.0
"""Seconds for all attempts to read the login shell's environment."""
INTERACTIVE_SHELL_TIMEOUT = 3.5
"""Seconds for the attempt with an interactive shell."""

_MODEL_KEYS = (
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
)

AGENT_SECRETS: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    "aider": _MODEL_KEYS,
    "cursor": ("CURSOR_API_KEY",),
    "opencode": _MODEL_KEYS,
    "kimicode": ("KIMI_API_KEY", "MOONSHOT_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    "copilot": (
        "COPILOT_GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BEARER_TOKEN",
    ),
    "goose": _MODEL_KEYS,
    "amp": ("AMP_API_KEY",),
    "auggie": ("AUGMENT_API_TOKEN", "AUGMENT_SESSION_AUTH"),
    "crush": _MODEL_KEYS,
    "droid": ("FACTORY_API_KEY",),
    "qwen": (*_MODEL_KEYS, "DASHSCOPE_API_KEY", "BAILIAN_CODING_PLAN_API_KEY"),
}
"""The secrets that each agent logs in with. Any other agent gets only those that `env` names."""

_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY"})

_FOREIGN = re.compile(
    r"AO_.*|TMUX.*|STY|WINDOW|COLUMNS|LINES|SHLVL|PWD|OLDPWD|_"
    r"|TERM_.*|LC_TERMINAL.*|ITERM_.*|KITTY_.*|WEZTERM_.*|ALACRITTY_.*|GHOSTTY_.*|KONSOLE_.*|VTE_VERSION|WT_.*|WINDOWID|GPG_TTY"
    r"|GIT_(DIR|WORK_TREE|INDEX_FILE|PREFIX|COMMON_DIR|OBJECT_DIRECTORY|NAMESPACE|CONFIG_COUNT|CONFIG_KEY_.*|CONFIG_VALUE_.*|CONFIG_PARAMETERS)"
    r"|CLAUDECODE|CLAUDE_CODE_ENTRYPOINT|CLAUDE_CODE_SSE_PORT|BASH_FUNC_.*|PYTEST_.*"
)
"""Variables of the terminal, Git command or agent from which the daemon happened to be started."""


async def login_environment(
    host: Host,
    shell: str | None,
    fallback: Mapping[str, str],
    report: LineCallback | None = None,
    programs: Path | None = None,
    found_ours: LineCallback | None = None,
) -> Mapping[str, str]:
    """Return the environment that the user's login shell sets up, or `fallback` (ours), with a note to `report`, if it fails.

    The shell is `shell`, else `$AO_SHELL`, else `$SHELL`. Folders that are only on our own PATH are appended to its PATH, so programs that
    the user could run where the daemon was started are found, except those of activated environments. The programs of our own interpreter
    are never in it, even if a profile adds them (`found_ours` gets the folder): `programs`, which holds only `ao`, comes first.
    """
    own_env = _own_environment(fallback)
    shell = shell or fallback.get("AO_SHELL") or fallback.get("SHELL") or "/bin/sh"
    if sys.platform == "win32":
        return own_env
    variables, problem = await _run_shell(host, str(Path(shell).expanduser()), own_env)
    if variables is None:
        if report:
            report(f"the login shell {shell} gave no environment ({problem}); agents get the daemon's own")
        variables = own_env
    else:
        if found_ours and (folder := interpreter.find_own_programs_folder(variables.get("PATH", ""))):
            found_ours(folder)
        variables = interpreter.without_own_interpreter(variables)
        variables["PATH"] = _join_paths(variables.get("PATH", ""), own_env.get("PATH", ""))
    if programs is not None:
        variables = interpreter.with_launchers(variables, str(programs))
    return {name: value for name, value in variables.items() if not _FOREIGN.fullmatch(name)}


async def _run_shell(host: Host, shell: str, env: Mapping[str, str]) -> tuple[dict[str, str] | None, str]:
    """Return the shell's variables, or None and the problem.

    It is run as an interactive login shell first (many set PATH only there), then as a plain login shell; within the time limit.
    """
    path = host.which(shell, env.get("PATH"))
    if path is None:
        return None, "it is not installed"
    marker = f"ao-environment-{secrets.token_hex(8)}"
    script = f"echo {marker}; /usr/bin/env -0; echo {marker}"
    env = {**env, "TERM": "dumb", "AO_RESOLVING_ENVIRONMENT": "1"}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SHELL_TIMEOUT
    problem = ""
    for flags, limit in ((["-i", "-l", "-c"], INTERACTIVE_SHELL_TIMEOUT), (["-l", "-c"], SHELL_TIMEOUT)):
        if Path(path).name in ("csh", "tcsh"):
            flags = ["-c"]  # they refuse -l with any other option
        try:
            result = await host.run(
                [path, *flags, script], env=env, timeout=max(0.1, min(limit, deadline - loop.time()))
            )
        except AoError as error:
            problem = error.text
            continue
        variables = _parse_variables(result.out, marker.encode())
        if variables:
            return variables, ""
        problem = f"exit {result.code}: {result.error}".rstrip(": ")
    return None, problem


def _parse_variables(output: bytes, marker: bytes) -> dict[str, str]:
    """Return what `env -0` printed between the markers; profile files may print other text around it."""
    _, start_marker, rest = output.partition(marker + b"\n")
    body, end_marker, _ = rest.rpartition(marker)
    if not start_marker or not end_marker:
        return {}
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in body.split(b"\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def _own_environment(fallback: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without what belongs to the place the daemon was started from, such as an activated environment."""
    return {
        name: value
        for name, value in interpreter.without_environments(fallback).items()
        if not _FOREIGN.fullmatch(name)
    }


def _join_paths(first: str, second: str) -> str:
    """Return two PATH values joined, without empty or repeated entries."""
    return os.pathsep.join(dict.fromkeys(entry for entry in (first + os.pathsep + second).split(os.pathsep) if entry))


def agent_environment(
    login: Mapping[str, str],
    project_env: Mapping[str, str],
    extra: Mapping[str, str],
    allow: Collection[str] = (),
) -> dict[str, str]:
    """Return an agent's environment: `login` without secrets (except `allow`), then `project_env`, then `extra`.

    A variable is secret by its name, or by its value: a token, a private key, an address with a password. Only a proxy's password stays:
    without it there is no network.
    """
    inherited = {
        name: value
        for name, value in login.items()
        if not _FOREIGN.fullmatch(name) and (name in allow or not (looks_secret(name) or _holds_secret(name, value)))
    }
    return {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", **project_env, **extra}


def _holds_secret(name: str, value: str) -> bool:
    """Return whether a value looks like a secret and is not a proxy's address."""
    return name.upper() not in _PROXIES and has_secret_format(value)


def session_variables(
    *,
    session: str,
    project: str,
    workspace: Path,
    branch: str,
    base: str,
    task_file: Path,
    spool: Path,
    inbox: Path,
    url: str,
    token: str,
    ports: Sequence[int] = (),
) -> dict[str, str]:
    """Return the variables by which an agent's process knows its session and how to report."""
    variables = {
        "AO_SESSION": session,
        "AO_PROJECT": project,
        "AO_WORKSPACE": str(workspace),
        "AO_BRANCH": branch,
        "AO_BASE": base,
        "AO_TASK_FILE": str(task_file),
        "AO_SPOOL": str(spool),
        "AO_INBOX": str(inbox),
        "AO_URL": url,
        "AO_TOKEN": token,
    }
    if ports:
        variables["PORT"] = str(ports[0])
    return variables | {f"AO_PORT_{number}": str(port) for number, port in enumerate(ports)}
