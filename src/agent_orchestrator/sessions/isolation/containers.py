"""The container of a session, from its project's configuration: image, network, limits, and what of this machine is visible in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols import Container, Mount

RUNTIME = "docker"

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

_ADDRESS_SUFFIXES = ("_BASE_URL", "_API_BASE", "_ENDPOINT")
"""Endings of variables that hold the address of a model."""
_LOGIN_VARIABLES = ("LANG", "LANGUAGE", "TZ")
"""Variables of the user's environment that every container gets."""


def home_inside(private: Path) -> Path:
    """Return the home folder of an agent in a container, which is in the session's private folder."""
    return private / "container" / "home"


def login_inside(login: Mapping[str, str], secrets: Collection[str], private: Path) -> dict[str, str]:
    """Return the part of the user's environment for an agent in a container: login secrets, language, time zone, and a separate home."""
    inherited = {
        name: value
        for name, value in login.items()
        if name in _LOGIN_VARIABLES or name.startswith("LC_") or name in secrets or name.endswith(_ADDRESS_SUFFIXES)
    }
    return {**inherited, "HOME": str(home_inside(private))}


def remove_escaping_links(private: Path) -> None:
    """Remove symlinks that leave a container's home, before a plugin writes into it: the agent may have made them."""
    home = home_inside(private)
    for entry in (*home.glob("*"), *home.glob("*/*")):
        if entry.is_symlink() and not entry.resolve().is_relative_to(home.resolve()):
            entry.unlink(missing_ok=True)


def container_of(
    project: ProjectConfig, settings: ResolvedAgent, repo: Path, private: Path, env: Mapping[str, str], url: str
) -> Container:
    """Return the container of one session."""
    docker = project.docker
    shared = [repo / name for name in project.symlinks]
    return Container(
        image=docker.image or "",
        dockerfile=repo / docker.dockerfile if docker.dockerfile and not docker.image else None,
        agent=settings.tool,
        engine=docker.engine,
        network=docker.network,
        allow=(*docker.allow, *AGENT_HOSTS.get(settings.tool, ()), *_model_hosts(env)),
        daemon=url,
        cpus=docker.cpus,
        memory=docker.memory,
        mounts=(
            *(Mount(path, path) for path in shared if path.exists()),
            *(_parse_mount(text, home_inside(private)) for text in docker.mounts),
        ),
    )


def _model_hosts(env: Mapping[str, str]) -> list[str]:
    """Return the hosts that variables name as the agent's model (`ANTHROPIC_BASE_URL`)."""
    hosts = []
    for name, value in env.items():
        address = urlsplit(value) if name.endswith(_ADDRESS_SUFFIXES) else None
        if address and address.hostname:
            hosts.append(f"{address.hostname}:{address.port or (80 if address.scheme == 'http' else 443)}")
    return hosts


def _parse_mount(text: str, home: Path) -> Mount:
    """Parse `PATH` or `PATH:rw`; a path in the user's home is at the same place in the container's home."""
    path = text.removesuffix(":rw").removesuffix(":ro")
    source = Path(path).expanduser()
    if not source.exists():
        raise Missing(f"docker.mounts names {path}, which is not there", "correct it, or remove it from docker.mounts")
    target = home / source.relative_to(Path.home()) if path.startswith("~/") else source.absolute()
    return Mount(source.resolve(), target, writable=text.endswith(":rw"))
