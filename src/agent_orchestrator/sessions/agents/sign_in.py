"""Whether an agent is signed in, as far as that can be known without a turn: `require_sign_in(...)`.

Codex and Cursor are asked; Claude Code and Gemini keep it in files. Whatever cannot be known counts as signed in: an agent with a
provider of its own, a keychain, an agent that is not listed here.
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

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.environment import AGENT_SECRETS

STATUS_WITHIN = 10.0
_SIGNED_OUT = re.compile(r"not (?:logged|signed) in|not authenticated|login required", re.IGNORECASE)
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class _Agent:
    """How an agent's sign-in is known."""

    login: str
    """The command by which a person signs in."""
    status: tuple[str, ...] = ()
    """The command that tells; none: its files do."""
    has_other: Callable[[Mapping[str, str], Path], bool] = lambda _env, _home: False
    """Whether it needs no sign-in of its own here, or has one in its files."""


async def require_sign_in(host: Host, tool: str, env: Mapping[str, str]) -> None:
    """Raise `Missing`, with the agent's own login command, if an agent with this environment is not signed in."""
    agent = _AGENTS.get(tool)
    if agent is None or any(env.get(name) for name in AGENT_SECRETS.get(tool, ())):
        return
    home = Path(env.get("HOME") or Path.home())
    if agent.has_other(env, home):
        return
    if not agent.status or await _says_signed_out(host, agent.status, env):
        raise Missing(f"{tool} is not signed in", f"sign in, then run it again: {agent.login}")


async def _says_signed_out(host: Host, argv: Sequence[str], env: Mapping[str, str]) -> bool:
    program = host.which(argv[0], env.get("PATH"))
    if program is None:
        return False
    try:
        done = await host.run([program, *argv[1:]], env=env, timeout=STATUS_WITHIN)
    except AoError:
        return False
    said = (done.out + b"\n" + done.err).decode(errors="replace")
    return bool(_SIGNED_OUT.search(said))


def _codex(env: Mapping[str, str], home: Path) -> bool:
    """A model provider that the user's configuration names."""
    folder = Path(env.get("CODEX_HOME") or home / ".codex")
    try:
        config: dict[str, Any] = tomllib.loads(_text(folder / "config.toml"))
    except tomllib.TOMLDecodeError:
        return True
    return bool(config.get("model_provider") or config.get("model_providers") or config.get("profile"))


def _claude_code(env: Mapping[str, str], home: Path) -> bool:
    """Another provider, a keychain, credentials, an account, or a key that a program of the user's gives."""
    if sys.platform == "darwin" or any(name.startswith("CLAUDE_CODE_USE_") for name in env):
        return True
    if env.get("ANTHROPIC_BASE_URL") or env.get("CLAUDE_CODE_API_KEY_HELPER_TTL_MS"):
        return True
    own = env.get("CLAUDE_CONFIG_DIR")
    folder, state = (Path(own), Path(own) / ".claude.json") if own else (home / ".claude", home / ".claude.json")
    if (folder / ".credentials.json").exists():
        return True
    known, settings = _json(state), _json(folder / "settings.json")
    if state.exists() and not known:
        return True  # it cannot be read
    of_env = settings.get("env")
    return bool(
        known.get("oauthAccount")
        or known.get("primaryApiKey")
        or settings.get("apiKeyHelper")
        or settings.get("forceLoginMethod")
        or (isinstance(of_env, dict) and any(name.startswith(("ANTHROPIC_", "CLAUDE_CODE_")) for name in of_env))
    )


def _gemini(env: Mapping[str, str], home: Path) -> bool:
    """A project of Google's cloud, credentials, or a way to sign in that needs no file."""
    if any(name.startswith(("GOOGLE_CLOUD_", "GOOGLE_GENAI_", "CLOUD_SHELL")) for name in env):
        return True
    folder = home / ".gemini"
    kept = ("oauth_creds.json", "google_accounts.json", ".env")
    security = _json(folder / "settings.json").get("security")
    auth = security.get("auth") if isinstance(security, dict) else None
    way = auth.get("selectedType") if isinstance(auth, dict) else None
    return (
        any((folder / name).exists() for name in kept)
        or (home / ".env").exists()
        or way not in (None, "oauth-personal")
    )


def _text(file: Path) -> str:
    try:
        return read_plain(file.resolve(), _LARGEST).decode(errors="replace")
    except (OSError, RuntimeError):
        return ""


def _json(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_text(file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_AGENTS: Mapping[str, _Agent] = {
    "codex": _Agent("codex login", ("codex", "login", "status"), _codex),
    "cursor": _Agent("cursor-agent login", ("cursor-agent", "status")),
    "claude-code": _Agent("claude /login", has_other=_claude_code),
    "gemini": _Agent("gemini", has_other=_gemini),
}
