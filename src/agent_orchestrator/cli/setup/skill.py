"""`ao skill`: teaches coding agents to use `ao`, by a file in the places where they look for skills."""

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
EVERYBODYS = ".agents/skills"
"""Read by every agent that keeps to the open standard."""
CLAUDES = ".claude/skills"
PLACES = {
    "claude-code": (CLAUDES, CLAUDES),
    "codex": (EVERYBODYS, EVERYBODYS),
    "gemini": (EVERYBODYS, EVERYBODYS),
    "opencode": (EVERYBODYS, EVERYBODYS),
    "cursor": (EVERYBODYS, EVERYBODYS),
    "copilot": (EVERYBODYS, EVERYBODYS),
    "goose": (CLAUDES, EVERYBODYS),
}
"""Below the home folder, and below a repository."""
_USUAL = ("claude-code", "codex")
_MARK = re.compile(r"^<!-- installed by ao (\S+), ([0-9a-f]{64}) -->\n", re.MULTILINE)


class Place(NamedTuple):
    """Where the skill goes, and for whom."""

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
    type=click.Choice(sorted(PLACES)),
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
        print(text(), end="")
        return 0
    base = _repository() if project else os.path.expanduser("~")
    places = _places(agents or _USUAL, base, project)
    if project:
        _stay_inside(base, places)
    done = [_install(place, force) for place in places]
    refused = [one for one in done if one["state"] == "kept"]
    if as_json:
        out.print_json({"skill": NAME, "version": __version__, "places": done})
    else:
        out.show(f"{one['state']} {one['path']} ({', '.join(one['agents'])})" for one in done)
    if refused:
        where = ", ".join(one["path"] for one in refused)
        raise Conflict(f"{where} was changed by hand", "`ao skill install --force` overwrites it")
    return 0


def text() -> str:
    """The skill, as it comes with this version."""
    with open(os.path.join(os.path.dirname(package), "cli", "skill_text", "SKILL.md"), encoding="utf-8") as file:
        return file.read()


def _places(agents: tuple[str, ...], base: str, project: bool) -> list[Place]:
    paths: dict[str, tuple[str, ...]] = {}
    for agent in agents:
        place = PLACES[agent][project]
        own = os.environ.get("CLAUDE_CONFIG_DIR") if place == CLAUDES and not project else None
        folder = os.path.join(own, "skills") if own else os.path.join(base, *place.split("/"))
        path = os.path.join(folder, NAME, "SKILL.md")
        paths[path] = (*paths.get(path, ()), agent)
    return [Place(names, path) for path, names in paths.items()]


def _stay_inside(repository: str, places: list[Place]) -> None:
    """A repository may have come with links that lead to files of the user's."""
    from pathlib import Path

    from agent_orchestrator.base.files.safe import leads_out

    for place in places:
        if leads_out(Path(repository), os.path.relpath(place.path, repository)):
            raise Conflict(f"{place.path} leads out of the repository", "see where its links lead, and remove them")


def _install(place: Place, force: bool) -> dict[str, Any]:
    wanted = _marked(text())
    try:
        with open(place.path, encoding="utf-8", errors="replace") as file:
            before: str | None = file.read()
    except FileNotFoundError:
        before = None
    except OSError as error:
        raise Missing(f"{place.path} cannot be read: {error.strerror}", "see what is there") from None
    state = "installed" if before is None else "current" if before == wanted else "updated"
    if before is not None and state == "updated" and not force and not _ours(before):
        state = "kept"
    if state in ("installed", "updated"):
        _write(place.path, wanted)
    return {"agents": list(place.agents), "path": place.path, "state": state}


def _marked(skill_text: str) -> str:
    """With a last line by which a later version sees that nobody changed it."""
    digest = hashlib.sha256(skill_text.encode()).hexdigest()
    return f"{skill_text}\n<!-- installed by ao {__version__}, {digest} -->\n"


def _ours(found: str) -> bool:
    """Is this what some version wrote, to the letter?"""
    mark = _MARK.search(found)
    if mark is None or mark.end() != len(found):
        return False
    return hashlib.sha256(found[: mark.start() - 1].encode()).hexdigest() == mark[2]


def _write(path: str, content: str) -> None:
    draft = f"{path}.{os.getpid()}"  # a new one: a link that a repository has brought is not written through
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(draft, "x", encoding="utf-8") as file:
            file.write(content)
        os.replace(draft, path)
    except OSError as error:
        raise Missing(f"{path} cannot be written: {error.strerror}", "make its folder writable") from None


def _repository() -> str:
    path = os.getcwd()
    while not os.path.exists(os.path.join(path, ".git")):
        above = os.path.dirname(path)
        if above == path:
            raise NotFound(f"{os.getcwd()} is in no repository", "go into one, or leave --project out")
        path = above
    return path
