"""What a session's container is, from its project's configuration: image, network, limits, and what it shows of this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
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
"""What each agent must reach to work at all: its model, and where it logs in."""

_ADDRESSES = ("_BASE_URL", "_API_BASE", "_ENDPOINT")
_OF_THE_LOGIN = ("LANG", "LANGUAGE", "TZ")


def home_inside(private: Path) -> Path:
    """The home of an agent in a container: its own, in the session's private folder."""
    return private / "container" / "home"


def login_inside(login: Mapping[str, str], secrets: Collection[str], private: Path) -> dict[str, str]:
    """What an agent in a container gets of the user's environment: what it logs in with, his language and his time zone."""
    kept = {
        name: value
        for name, value in login.items()
        if name in _OF_THE_LOGIN or name.startswith("LC_") or name in secrets or name.endswith(_ADDRESSES)
    }
    return {**kept, "HOME": str(home_inside(private))}


def tidy_home(private: Path) -> None:
    """Before a plugin of ours writes into an agent's home: no link that the agent made there leads us out of it."""
    home = home_inside(private)
    for entry in (*home.glob("*"), *home.glob("*/*")):
        if entry.is_symlink() and not entry.resolve().is_relative_to(home.resolve()):
            entry.unlink(missing_ok=True)


def container_of(
    project: ProjectConfig, settings: AgentSettings, repo: Path, private: Path, env: Mapping[str, str], url: str
) -> Container:
    """The container of one session."""
    asked = project.docker
    shared = [repo / name for name in project.symlinks]
    return Container(
        image=asked.image or "",
        dockerfile=repo / asked.dockerfile if asked.dockerfile and not asked.image else None,
        agent=settings.tool,
        engine=asked.engine,
        network=asked.network,
        allow=(*asked.allow, *AGENT_HOSTS.get(settings.tool, ()), *_named(env)),
        daemon=url,
        cpus=asked.cpus,
        memory=asked.memory,
        mounts=(
            *(Mount(path, path) for path in shared if path.exists()),
            *(_mount(text, home_inside(private)) for text in asked.mounts),
        ),
    )


def _named(env: Mapping[str, str]) -> list[str]:
    """Hosts that variables name as the agent's model (`ANTHROPIC_BASE_URL`)."""
    found = []
    for name, value in env.items():
        address = urlsplit(value) if name.endswith(_ADDRESSES) else None
        if address and address.hostname:
            found.append(f"{address.hostname}:{address.port or (80 if address.scheme == 'http' else 443)}")
    return found


def _mount(text: str, home: Path) -> Mount:
    """`PATH` or `PATH:rw`; what is in the user's home is at the same place in its own."""
    path = text.removesuffix(":rw").removesuffix(":ro")
    source = Path(path).expanduser()
    if not source.exists():
        raise Missing(f"docker.mounts names {path}, which is not there", "correct it, or remove it from docker.mounts")
    target = home / source.relative_to(Path.home()) if path.startswith("~/") else source.absolute()
    return Mount(source.resolve(), target, writable=text.endswith(":rw"))
