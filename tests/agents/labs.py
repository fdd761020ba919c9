"""How each real agent CLI is connected to the scripted model: environment variables, files in its home, and its abilities.

The files are those of a user who has logged in; everything else (trust, onboarding, permissions) is done by the plugins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Files = Mapping[str, str]

ALL_ABILITIES = frozenset(
    {"dialog", "escape", "retrying", "limit", "resume", "usage", "todo", "queue", "headless", "system"}
)
"""The abilities that the common tests need; a lab leaves out what its agent cannot do, as the agent's page says."""


@dataclass(frozen=True)
class AgentLab:
    """One agent connected to the scripted model."""

    agent: str
    env: Callable[[str], Mapping[str, str]]
    files: Callable[[str], Files] = lambda _url: {}
    """Returns the files below the home, given the model's URL."""
    model: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    abilities: frozenset[str] = ALL_ABILITIES
    start_timeout: float = 60.0
    failure_count: int = 3
    """How many requests must fail in a row until the agent shows that it retries."""
    final_statuses: frozenset[int] = frozenset()
    """HTTP statuses that end its turn immediately."""

    def ask(self, command: str) -> str:
        """Return a directive that makes the agent request permission to run a command."""
        if self.agent == "codex":  # its sandbox refuses what was not asked for
            arguments = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "May I?"}
            return f"[[tool: exec_command {json.dumps(arguments)}]]"
        return f"[[sh: {command}]]"

    def commit(self, path: str, text: str, final_words: str = "All is done.") -> str:
        """Return the text of a task: write a file, commit it, print a text."""
        if self.agent == "aider":
            return f"[[write: {path}|{text}]] [[say: {final_words}]]"
        return f"[[write: {path}|{text}]] [[sh: git add {path}]] [[sh: git commit -m made]] [[say: {final_words}]]"


def _opencode(url: str) -> Files:
    model = {
        "name": "gpt-5",
        "limit": {"context": 200_000, "output": 8000},
        "cost": {"input": 1, "output": 2, "cache_read": 0.1},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "k"},
        "models": {"gpt-5": model},
    }
    config = {
        "model": "scripted/gpt-5",
        "small_model": "scripted/gpt-5",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"scripted": provider},
    }
    return {".config/opencode/opencode.json": json.dumps(config)}


def _codex(url: str) -> Files:
    return {
        ".codex/config.toml": f"""\
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
[tools.update_plan]
enabled = true
"""
    }


def _kimi(url: str) -> Files:
    return {
        ".kimi-code/config.toml": f"""\
default_model = "scripted/gpt-5"
telemetry = false
[providers.scripted]
type = "openai"
base_url = "{url}/v1"
api_key = "k"
[models."scripted/gpt-5"]
provider = "scripted"
model = "gpt-5"
max_context_size = 200000
"""
    }


def _gemini(_url: str) -> Files:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        "privacy": {"usageStatisticsEnabled": False},
    }
    return {".gemini/settings.json": json.dumps(settings)}


KEY = "sk-ant-api03-scripted-key-of-no-value-at-all-0123456789"

LABS = {
    lab.agent: lab
    for lab in (
        AgentLab(
            "claude-code",
            lambda url: {
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "IS_SANDBOX": "1",
            },
            model="claude-sonnet-4-5",
            abilities=ALL_ABILITIES
            - {"limit"},  # with an API key it is told of no reset; tested with a login of its own
        ),
        AgentLab(
            "codex", lambda _url: {"OPENAI_API_KEY": "k"}, _codex, failure_count=8, final_statuses=frozenset({429})
        ),
        AgentLab("opencode", lambda _url: {}, _opencode),
        AgentLab(
            "aider",
            lambda url: {
                "OPENAI_API_BASE": f"{url}/v1",
                "OPENAI_API_KEY": "k",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
            lambda _url: {".aider/caches/model_prices_and_context_window.json": '{"gpt-5": {"mode": "chat"}}'},
            model="openai/gpt-5",
            abilities=ALL_ABILITIES - {"todo", "queue", "limit"},
        ),
        AgentLab(
            "gemini",
            lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "k"},
            _gemini,
            model="gemini-2.5-pro",
            abilities=ALL_ABILITIES - {"headless", "retrying", "todo", "limit"},
            start_timeout=120.0,
        ),
        AgentLab(
            "copilot",
            lambda url: {
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
                "COPILOT_MODEL": "gpt-5",
                "COPILOT_PROVIDER_API_KEY": "k",
            },
            abilities=ALL_ABILITIES - {"headless", "retrying", "todo", "limit"},
            start_timeout=120.0,
        ),
        AgentLab(
            "goose",
            lambda url: {
                "GOOSE_PROVIDER": "openai",
                "GOOSE_MODEL": "gpt-5",
                "OPENAI_HOST": url,
                "OPENAI_API_KEY": "k",
                "GOOSE_DISABLE_KEYRING": "1",
                "GOOSE_TELEMETRY_ENABLED": "false",
            },
            abilities=ALL_ABILITIES - {"queue", "limit"},
        ),
        AgentLab(
            "kimicode", lambda _url: {}, _kimi, abilities=ALL_ABILITIES - {"headless", "limit"}, start_timeout=120.0
        ),
        AgentLab(
            "qwen",
            lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-5"},
            lambda _url: {".qwen/settings.json": '{"general": {"enableAutoUpdate": false}}'},
            abilities=frozenset({"resume"}),
            start_timeout=120.0,
        ),
    )
}


def write_files(home: Path, files: Files) -> None:
    """Write the files of a user who has logged in."""
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
