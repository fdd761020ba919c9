"""Checks whether an agent is signed in, as far as that is possible without a turn: `require_sign_in(...)`.

Codex and Cursor have a command for it; the sign-in of Claude Code and Gemini is in files. An agent whose sign-in cannot be checked counts
as signed in: one with its own provider or a keychain, or one that is not listed here.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS

STATUS_TIMEOUT = 10.0
"""Seconds that an agent's status command may take."""
_SIGNED_OUT = re.compile(r"not (?:logged|signed) in|not authenticated|login required", re.IGNORECASE)
_MAX_FILE_SIZE = 64 << 20
"""Maximum size in bytes of a file that is read."""


@dataclass(frozen=True, slots=True)
class _SignInCheck:
    """How an agent's sign-in is checked."""

    login_command: str
    """The command by which a person signs in."""
    status_command: tuple[str, ...] = ()
    """The command that prints whether the agent is signed in; empty if its files show it."""
    has_other_login: Callable[[Mapping[str, str], Path], bool] = lambda _env, _home: False
    """Returns whether another provider is configured, which needs no sign-in, or the agent's files contain a login."""


async def require_sign_in(host: Host, tool: str, env: Mapping[str, str]) -> None:
    """Raise `Missing`, with the agent's own login command, if an agent with this environment is not signed in."""
    agent = _SIGN_IN_CHECKS.get(tool)
    if agent is None or any(env.get(name) for name in AGENT_SECRETS.get(tool, ())):
        return
    home = Path(env.get("HOME") or Path.home())
    if agent.has_other_login(env, home):
        return
    if not agent.status_command or await _is_signed_out(host, agent.status_command, env):
        raise Missing(f"{tool} is not signed in", f"sign in, then run it again: {agent.login_command}")


async def _is_signed_out(host: Host, argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether the status command says that the agent is not signed in; False if it cannot be run."""
    program = host.which(argv[0], env.get("PATH"))
    if program is None:
        return False
    try:
        result = await host.run([program, *argv[1:]], env=env, timeout=STATUS_TIMEOUT)
    except AoError:
        return False
    output = (result.out + b"\n" + result.err).decode(errors="replace")
    return bool(_SIGNED_OUT.search(output))


def _has_codex_provider(env: Mapping[str, str], home: Path) -> bool:
    """Return whether the user's configuration names a model provider."""
    folder = Path(env.get("CODEX_HOME") or home / ".codex")
    try:
        config: dict[str, Any] = tomllib.loads(_read_text(folder / "config.toml"))
    except tomllib.TOMLDecodeError:
        return True
    return bool(config.get("model_provider") or config.get("model_providers") or config.get("profile"))


def _has_claude_code_login(env: Mapping[str, str], home: Path) -> bool:
    """Return whether another provider, a keychain, credentials, an account or a key helper is configured."""
    if sys.platform == "darwin" or any(name.startswith("CLAUDE_CODE_USE_") for name in env):
        return True
    if env.get("ANTHROPIC_BASE_URL") or env.get("CLAUDE_CODE_API_KEY_HELPER_TTL_MS"):
        return True
    config_dir = env.get("CLAUDE_CONFIG_DIR")
    folder, state = (
        (Path(config_dir), Path(config_dir) / ".claude.json")
        if config_dir
        else (home / ".claude", home / ".claude.json")
    )
    if (folder / ".credentials.json").exists():
        return True
    state_data, settings = _read_json(state), _read_json(folder / "settings.json")
    if state.exists() and not state_data:
        return True  # it exists and cannot be parsed
    settings_env = settings.get("env")
    return bool(
        state_data.get("oauthAccount")
        or state_data.get("primaryApiKey")
        or settings.get("apiKeyHelper")
        or settings.get("forceLoginMethod")
        or (
            isinstance(settings_env, dict)
            and any(name.startswith(("ANTHROPIC_", "CLAUDE_CODE_")) for name in settings_env)
        )
    )


def _has_gemini_login(env: Mapping[str, str], home: Path) -> bool:
    """Return whether a Google Cloud project, credentials, or a sign-in that needs no file is configured."""
    if any(name.startswith(("GOOGLE_CLOUD_", "GOOGLE_GENAI_", "CLOUD_SHELL")) for name in env):
        return True
    folder = home / ".gemini"
    login_files = ("oauth_creds.json", "google_accounts.json", ".env")
    security = _read_json(folder / "settings.json").get("security")
    auth = security.get("auth") if isinstance(security, dict) else None
    auth_type = auth.get("selectedType") if isinstance(auth, dict) else None
    return (
        any((folder / name).exists() for name in login_files)
        or (home / ".env").exists()
        or auth_type not in (None, "oauth-personal")
    )


def _read_text(file: Path) -> str:
    """Return a file's text, or "" if it cannot be read."""
    try:
        return read_regular_file(file.resolve(), _MAX_FILE_SIZE).decode(errors="replace")
    except (OSError, RuntimeError):
        return ""


def _read_json(file: Path) -> Mapping[str, Any]:
    """Return a file's JSON object, or an empty one."""
    try:
        data = json.loads(_read_text(file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


_SIGN_IN_CHECKS: Mapping[str, _SignInCheck] = {
    "codex": _SignInCheck("codex login", ("codex", "login", "status"), _has_codex_provider),
    "cursor": _SignInCheck("cursor-agent login", ("cursor-agent", "status")),
    "claude-code": _SignInCheck("claude /login", has_other_login=_has_claude_code_login),
    "gemini": _SignInCheck("gemini", has_other_login=_has_gemini_login),
}
