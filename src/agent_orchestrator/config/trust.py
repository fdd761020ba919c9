"""What a configuration would run on the user's machine, in a form that can be shown, compared and trusted.

Trust holds for content: as long as the digest stays the same, nothing else would run. Who is trusted is the daemon's to say.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from agent_orchestrator.config.model import Config, Coordinator, Defaults, Docker, Project, Reaction

_EXECUTING = re.compile(
    r"PATH|BASH_ENV|ENV|SHELL|EDITOR|VISUAL|PAGER|BROWSER|IFS|.*_COMMAND|.*_EDITOR|.*_PAGER|.*_ASKPASS"
    r"|(LD|DYLD|GIT|SSH|NODE|NPM|PYTHON|PERL5|RUBY|JAVA|BASH_FUNC|AO)_?.*",
    re.IGNORECASE,
)
"""Variables that decide which programs run."""
_OF_GITHUB = re.compile(r"(https://|git@|ssh://git@)github\.com[/:]", re.IGNORECASE)


def commands_of(config: Config, project: str | None = None) -> dict[str, Any]:
    """Everything that a file would run, for one of its projects or for all; empty when there is nothing."""
    projects = {name: p for name, p in config.projects.items() if project in (None, name)}
    if config.project:
        projects["."] = config.project
    found: dict[str, Any] = {
        "projects": _filled({name: _of_project(p) for name, p in projects.items()}),
        "agents": _filled({name: _of_profile(config, name) for name in config.agents}),
        "defaults": _filled({"hosts": _hosts(config.defaults), **_permissions(config.defaults)}),
        "reactions": _of_reactions(config.reactions),
        "plugins": [entry.path for entry in config.plugins],
        "coordinator": _filled(
            {
                **_of_coordinator(config.orchestrator.coordinator),
                **_filled({name: _of_coordinator(p.coordinator) for name, p in projects.items()}),
            }
        ),
    }
    return _filled(found)


def digest(commands: Mapping[str, Any]) -> str:
    """A stable digest of what would run; "" when there is nothing."""
    if not commands:
        return ""
    text = json.dumps(commands, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _of_project(project: Project) -> dict[str, Any]:
    return _filled(
        {
            "postCreate": list(project.post_create),
            "ci": {name: check.command for name, check in project.ci.items()},
            "commands": list(project.commands),
            "fix": list(project.fix.commands),
            "env": _executing(project.env),
            "reactions": _of_reactions(project.reactions),
            "hosts": _hosts(project),
            "docker": _of_docker(project.docker),
            **_permissions(project),
        }
    )


def _of_docker(docker: Docker) -> dict[str, Any]:
    """What gets the agent's login, what of the user's it sees, and whether it reaches his machine."""
    host = "host" if docker.network == "host" else None
    named = {"image": docker.image, "dockerfile": docker.dockerfile, "mounts": list(docker.mounts), "network": host}
    return _filled({**named, "allow": list(docker.allow)})


def _of_coordinator(coordinator: Coordinator) -> dict[str, Any]:
    """An agent that starts by itself, or may do more than plan, start and steer."""
    full = "full" if coordinator.permissions == "full" else None
    return _filled({"auto": coordinator.auto, "may": list(coordinator.may), "permissions": full})


def _hosts(part: Defaults) -> list[str]:
    """Where a token of the user's would be sent because the file says so, and not because that is where such tokens are for."""
    options = [one.options for one in (part.scm, part.tracker)]
    named = [str(given[key]) for given in options for key in ("apiUrl", "url", "host", "repo") if given.get(key)]
    repo = part.repo if isinstance(part, Project) else None
    elsewhere = [one for one in (*named, repo or "") if "://" in one or "@" in one or one.count(".") > one.count("/")]
    return [one for one in dict.fromkeys(elsewhere) if not _OF_GITHUB.match(one)]


def _of_profile(config: Config, name: str) -> dict[str, Any]:
    profile = config.agents[name]
    return _filled(
        {
            "command": list(profile.command),
            "resume": list(profile.resume),
            "script": profile.script,
            "env": _executing(profile.env),
            "permissions": "full" if profile.permissions == "full" else None,
            "reactions": _of_reactions(profile.reactions),
        }
    )


def _permissions(owner: Defaults) -> dict[str, Any]:
    return {"permissions": "full"} if owner.agent_config.permissions == "full" else {}


def _of_reactions(reactions: Mapping[str, Reaction]) -> dict[str, Any]:
    return {name: reaction.command for name, reaction in reactions.items() if reaction.command}


def _executing(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if _EXECUTING.fullmatch(name)}


def _filled(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value}
