"""`ao skill`: install a skill file that teaches coding agents to use `ao`."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, NamedTuple

import click

from agent_orchestrator import __file__ as package
from agent_orchestrator import __version__
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import json_option
from agent_orchestrator.errors import Conflict, Missing, NotFound

NAME = "agent-orchestrator"
SHARED_FOLDER = ".agents/skills"
"""Read by every agent that follows the open standard."""
CLAUDE_FOLDER = ".claude/skills"
SKILL_FOLDERS = {
    "claude-code": (CLAUDE_FOLDER, CLAUDE_FOLDER),
    "codex": (SHARED_FOLDER, SHARED_FOLDER),
    "gemini": (SHARED_FOLDER, SHARED_FOLDER),
    "opencode": (SHARED_FOLDER, SHARED_FOLDER),
    "cursor": (SHARED_FOLDER, SHARED_FOLDER),
    "copilot": (SHARED_FOLDER, SHARED_FOLDER),
    "goose": (CLAUDE_FOLDER, SHARED_FOLDER),
}
"""The skill folder of each agent: below the home folder, and below a repository."""
_DEFAULT_AGENTS = ("claude-code", "codex")
_INSTALL_MARK = re.compile(r"^<!-- installed by ao (\S+), ([0-9a-f]{64}) -->\n", re.MULTILINE)


class SkillLocation(NamedTuple):
    """A file that the skill is installed to, and the agents that read it."""

    agents: tuple[str, ...]
    path: str


@click.group()
def skill() -> None:
    """Teach coding agents to use `ao`."""


@skill.command()
@click.option(
    "--agent",
    "agents",
    metavar="A",
    multiple=True,
    type=click.Choice(sorted(SKILL_FOLDERS)),
    help="Only for this agent; may be repeated.",
)
@click.option("--project", is_flag=True, help="Into the repository here, for all who work on it.")
@click.option("--force", is_flag=True, help="Overwrite a file that was changed by hand.")
@click.option("--print", "only_print", is_flag=True, help="Print the skill, and install nothing.")
@json_option
def install(agents: tuple[str, ...], project: bool, force: bool, only_print: bool, as_json: bool) -> int:
    """Install the skill that teaches agents to use `ao`.

    Into your home folder: ~/.claude/skills for Claude Code, ~/.agents/skills for Codex, Gemini, OpenCode, Cursor, Copilot and others.
    Run it again after an update; a file that you changed is left alone.
    """
    if only_print:
        print(skill_text(), end="")
        return 0
    base = _repository_root() if project else os.path.expanduser("~")
    places = _locations(agents or _DEFAULT_AGENTS, base, project)
    if project:
        _check_stays_inside(base, places)
    results = [_install(place, force) for place in places]
    kept = [result for result in results if result["state"] == "kept"]
    if as_json:
        out.print_json({"skill": NAME, "version": __version__, "places": results})
    else:
        out.print_lines(f"{result['state']} {result['path']} ({', '.join(result['agents'])})" for result in results)
    if kept:
        paths = ", ".join(result["path"] for result in kept)
        raise Conflict(f"{paths} was changed by hand", "`ao skill install --force` overwrites it")
    return 0


def skill_text() -> str:
    """Return the skill of this version."""
    with open(os.path.join(os.path.dirname(package), "cli", "skill_text", "SKILL.md"), encoding="utf-8") as file:
        return file.read()


def _locations(agents: tuple[str, ...], base: str, project: bool) -> list[SkillLocation]:
    paths: dict[str, tuple[str, ...]] = {}
    for agent in agents:
        folder_name = SKILL_FOLDERS[agent][project]
        claude_home = os.environ.get("CLAUDE_CONFIG_DIR") if folder_name == CLAUDE_FOLDER and not project else None
        folder = os.path.join(claude_home, "skills") if claude_home else os.path.join(base, *folder_name.split("/"))
        path = os.path.join(folder, NAME, "SKILL.md")
        paths[path] = (*paths.get(path, ()), agent)
    return [SkillLocation(agent_names, path) for path, agent_names in paths.items()]


def _check_stays_inside(repository: str, locations: list[SkillLocation]) -> None:
    """Raise Conflict if a location leads out of the repository by a symbolic link."""
    from pathlib import Path

    from agent_orchestrator.base.files.safe import escapes_folder

    for location in locations:
        if escapes_folder(Path(repository), os.path.relpath(location.path, repository)):
            raise Conflict(f"{location.path} leads out of the repository", "see where its links lead, and remove them")


def _install(location: SkillLocation, force: bool) -> dict[str, Any]:
    content = _with_mark(skill_text())
    try:
        with open(location.path, encoding="utf-8", errors="replace") as file:
            current: str | None = file.read()
    except FileNotFoundError:
        current = None
    except OSError as error:
        raise Missing(f"{location.path} cannot be read: {error.strerror}", "see what is there") from None
    state = "installed" if current is None else "current" if current == content else "updated"
    if current is not None and state == "updated" and not force and not _is_unchanged(current):
        state = "kept"
    if state in ("installed", "updated"):
        _write(location.path, content)
    return {"agents": list(location.agents), "path": location.path, "state": state}


def _with_mark(skill_text: str) -> str:
    """Return the text with a last line that lets a later version detect changes by hand."""
    digest = hashlib.sha256(skill_text.encode()).hexdigest()
    return f"{skill_text}\n<!-- installed by ao {__version__}, {digest} -->\n"


def _is_unchanged(content: str) -> bool:
    """Return whether the content is exactly what some version wrote."""
    mark = _INSTALL_MARK.search(content)
    if mark is None or mark.end() != len(content):
        return False
    return hashlib.sha256(content[: mark.start() - 1].encode()).hexdigest() == mark[2]


def _write(path: str, content: str) -> None:
    draft = f"{path}.{os.getpid()}"  # a new one: a link that a repository has brought is not written through
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(draft, "x", encoding="utf-8") as file:
            file.write(content)
        os.replace(draft, path)
    except OSError as error:
        raise Missing(f"{path} cannot be written: {error.strerror}", "make its folder writable") from None


def _repository_root() -> str:
    path = os.getcwd()
    while not os.path.exists(os.path.join(path, ".git")):
        above = os.path.dirname(path)
        if above == path:
            raise NotFound(f"{os.getcwd()} is in no repository", "go into one, or leave --project out")
        path = above
    return path
