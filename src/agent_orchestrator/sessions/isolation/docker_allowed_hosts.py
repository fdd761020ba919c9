"""The hosts that an agent in a container may reach without configuration: its model, and where it logs in."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_MODEL_HOSTS = (
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "openrouter.ai",
    "api.deepseek.com",
    "api.groq.com",
    "api.mistral.ai",
    "api.x.ai",
)

AGENT_HOSTS: Mapping[str, tuple[str, ...]] = {
    "aider": _MODEL_HOSTS,
    "amp": ("ampcode.com", "*.ampcode.com"),
    "auggie": ("*.augmentcode.com",),
    "claude-code": ("api.anthropic.com", "claude.ai", "console.anthropic.com", "platform.claude.com"),
    "codex": ("api.openai.com", "auth.openai.com", "chatgpt.com"),
    "copilot": ("api.github.com", "github.com", "*.githubcopilot.com"),
    "crush": _MODEL_HOSTS,
    "cursor": ("cursor.com", "*.cursor.com", "*.cursor.sh"),
    "droid": ("*.factory.ai",),
    "gemini": (
        "generativelanguage.googleapis.com",
        "cloudcode-pa.googleapis.com",
        "oauth2.googleapis.com",
        "accounts.google.com",
    ),
    "goose": _MODEL_HOSTS,
    "kimicode": ("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
    "opencode": (*_MODEL_HOSTS, "opencode.ai", "models.dev"),
    "qwen": ("chat.qwen.ai", "portal.qwen.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
}
"""The hosts that each agent must reach to work at all: its model, and where it logs in."""

ADDRESS_SUFFIXES = ("_BASE_URL", "_API_BASE", "_ENDPOINT")
"""Endings of variables that hold the address of a model."""


def model_hosts(env: Mapping[str, str]) -> list[str]:
    """Return the hosts that variables name as the agent's model (`ANTHROPIC_BASE_URL`)."""
    hosts = []
    for name, value in env.items():
        address = urlsplit(value) if name.endswith(ADDRESS_SUFFIXES) else None
        if address and address.hostname:
            hosts.append(f"{address.hostname}:{address.port or (80 if address.scheme == 'http' else 443)}")
    return hosts
