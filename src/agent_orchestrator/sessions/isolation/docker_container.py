"""The container of a session, from its project's configuration: image, network, limits, and what of this machine is visible in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols import Container, Mount
from agent_orchestrator.sessions.isolation.docker_allowed_hosts import ADDRESS_SUFFIXES, AGENT_HOSTS, model_hosts

DOCKER_RUNTIME = "docker"

_LOGIN_VARIABLES = ("LANG", "LANGUAGE", "TZ")
"""Variables of the user's environment that every container gets."""


def container_home(private: Path) -> Path:
    """Return the home folder of an agent in a container, which is in the session's private folder."""
    return private / "container" / "home"


def container_login_environment(login: Mapping[str, str], secrets: Collection[str], private: Path) -> dict[str, str]:
    """Return the part of the user's environment for an agent in a container: login secrets, language, time zone, and a separate home."""
    inherited = {
        name: value
        for name, value in login.items()
        if name in _LOGIN_VARIABLES or name.startswith("LC_") or name in secrets or name.endswith(ADDRESS_SUFFIXES)
    }
    return {**inherited, "HOME": str(container_home(private))}


def remove_escaping_links(private: Path) -> None:
    """Remove symlinks that leave a container's home, before a plugin writes into it: the agent may have made them."""
    home = container_home(private)
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
        allow=(*docker.allow, *AGENT_HOSTS.get(settings.tool, ()), *model_hosts(env)),
        daemon=url,
        cpus=docker.cpus,
        memory=docker.memory,
        mounts=(
            *(Mount(path, path) for path in shared if path.exists()),
            *(_parse_mount(text, container_home(private)) for text in docker.mounts),
        ),
    )


def _parse_mount(text: str, home: Path) -> Mount:
    """Parse `PATH` or `PATH:rw`; a path in the user's home is at the same place in the container's home."""
    path = text.removesuffix(":rw").removesuffix(":ro")
    source = Path(path).expanduser()
    if not source.exists():
        raise Missing(f"docker.mounts names {path}, which is not there", "correct it, or remove it from docker.mounts")
    target = home / source.relative_to(Path.home()) if path.startswith("~/") else source.absolute()
    return Mount(source.resolve(), target, writable=text.endswith(":rw"))
