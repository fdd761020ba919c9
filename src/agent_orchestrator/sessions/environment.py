"""The environment an agent gets: the user's login shell's, less secrets it doesn't need, plus the project's and the session's.

The daemon may have been started from anywhere (a desktop, cron, inside another agent, with some project's environment activated), so its
own environment is not the one that the user's programs are found in. The login shell is asked once; whoever asks keeps the answer.
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
from agent_orchestrator.base.text.redaction import shaped
from agent_orchestrator.errors import AoError

if TYPE_CHECKING:
    from agent_orchestrator.protocols import Report
    from agent_orchestrator.protocols.host import Host

TIME_LIMIT = 5.0
INTERACTIVE_LIMIT = 3.5

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
"""The secrets each agent logs in with. Any other agent gets none but those that `env` names."""

_SECRET_WORDS = frozenset(
    [
        "APIKEY",
        "CREDENTIAL",
        "CREDENTIALS",
        "DSN",
        "KEY",
        "PASS",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PAT",
        "PWD",
        "SECRET",
        "SECRETS",
        "TOKEN",
        "TOKENS",
        "WEBHOOK",
        "WEBHOOKS",
    ]
)
_SECRET_ENDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "API_KEY")
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY"})

_FOREIGN = re.compile(
    r"AO_.*|TMUX.*|STY|WINDOW|COLUMNS|LINES|SHLVL|PWD|OLDPWD|_"
    r"|TERM_.*|LC_TERMINAL.*|ITERM_.*|KITTY_.*|WEZTERM_.*|ALACRITTY_.*|GHOSTTY_.*|KONSOLE_.*|VTE_VERSION|WT_.*|WINDOWID|GPG_TTY"
    r"|GIT_(DIR|WORK_TREE|INDEX_FILE|PREFIX|COMMON_DIR|OBJECT_DIRECTORY|NAMESPACE|CONFIG_COUNT|CONFIG_KEY_.*|CONFIG_VALUE_.*|CONFIG_PARAMETERS)"
    r"|CLAUDECODE|CLAUDE_CODE_ENTRYPOINT|CLAUDE_CODE_SSE_PORT|BASH_FUNC_.*|PYTEST_.*"
)
"""Belongs to the terminal, Git command or agent that somebody happened to start us from."""


async def login_environment(
    host: Host,
    shell: str | None,
    fallback: Mapping[str, str],
    report: Report | None = None,
    programs: Path | None = None,
    found_ours: Report | None = None,
) -> Mapping[str, str]:
    """The environment that the user's login shell sets up; `fallback` (ours), with a note to `report`, if it does not answer.

    The shell is `shell`, else `$AO_SHELL`, else `$SHELL`. Folders only on our own PATH are appended to its PATH, so a program that
    the user could run where he started us is found; those of activated environments are not. The programs of our own interpreter are
    never in it, even where a profile puts them there (`found_ours` gets the folder): `programs`, which holds only `ao`, comes first.
    """
    own = _own(fallback)
    shell = shell or fallback.get("AO_SHELL") or fallback.get("SHELL") or "/bin/sh"
    if sys.platform == "win32":
        return own
    found, problem = await _ask(host, str(Path(shell).expanduser()), own)
    if found is None:
        if report:
            report(f"the login shell {shell} gave no environment ({problem}); agents get the daemon's own")
        found = own
    else:
        if found_ours and (folder := interpreter.own_folder(found.get("PATH", ""))):
            found_ours(folder)
        found = interpreter.without_own(found)
        found["PATH"] = _joined(found.get("PATH", ""), own.get("PATH", ""))
    if programs is not None:
        found = interpreter.with_launchers(found, str(programs))
    return {name: value for name, value in found.items() if not _FOREIGN.fullmatch(name)}


async def _ask(host: Host, shell: str, env: Mapping[str, str]) -> tuple[dict[str, str] | None, str]:
    """As an interactive login shell first (many set PATH only there), then as a plain login shell; within the time limit."""
    path = host.which(shell, env.get("PATH"))
    if path is None:
        return None, "it is not installed"
    marker = f"ao-environment-{secrets.token_hex(8)}"
    script = f"echo {marker}; /usr/bin/env -0; echo {marker}"
    env = {**env, "TERM": "dumb", "AO_RESOLVING_ENVIRONMENT": "1"}
    loop = asyncio.get_running_loop()
    end = loop.time() + TIME_LIMIT
    problem = ""
    for flags, limit in ((["-i", "-l", "-c"], INTERACTIVE_LIMIT), (["-l", "-c"], TIME_LIMIT)):
        if Path(path).name in ("csh", "tcsh"):
            flags = ["-c"]  # they refuse -l beside anything else
        try:
            done = await host.run([path, *flags, script], env=env, timeout=max(0.1, min(limit, end - loop.time())))
        except AoError as error:
            problem = error.text
            continue
        variables = _between(done.out, marker.encode())
        if variables:
            return variables, ""
        problem = f"exit {done.code}: {done.error}".rstrip(": ")
    return None, problem


def _between(output: bytes, marker: bytes) -> dict[str, str]:
    """What `env -0` printed between the markers; profile files may print what they like around it."""
    _, first, rest = output.partition(marker + b"\n")
    body, second, _ = rest.rpartition(marker)
    if not first or not second:
        return {}
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in body.split(b"\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def _own(fallback: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what belongs to the place we were started from, any activated environment included."""
    return {name: value for name, value in interpreter.deactivated(fallback).items() if not _FOREIGN.fullmatch(name)}


def _joined(first: str, second: str) -> str:
    return os.pathsep.join(dict.fromkeys(entry for entry in (first + os.pathsep + second).split(os.pathsep) if entry))


def looks_secret(name: str) -> bool:
    """Does a variable of this name hold a secret, as far as its name tells?"""
    upper = name.upper()
    if upper in _NOT_SECRET:
        return False
    return upper.endswith(_SECRET_ENDS) or not _SECRET_WORDS.isdisjoint(upper.split("_"))


def agent_environment(
    login: Mapping[str, str],
    project_env: Mapping[str, str],
    extra: Mapping[str, str],
    allow: Collection[str] = (),
) -> dict[str, str]:
    """What an agent's process gets: `login` less what is secret (unless in `allow`), then `project_env`, then `extra`.

    Secret is what is called so, and what is one by its looks, whatever it is called: a token, a private key, an address with a
    password. Only a proxy's password stays: without it there is no network.
    """
    kept = {
        name: value
        for name, value in login.items()
        if not _FOREIGN.fullmatch(name) and (name in allow or not (looks_secret(name) or _holds_secret(name, value)))
    }
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", **project_env, **extra}


def _holds_secret(name: str, value: str) -> bool:
    return name.upper() not in _PROXIES and shaped(value)


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
    """The variables that tell an agent's process which session it is, and how to report."""
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
