"""Writing a project's `postCreate` and `ci` into a file, each in its usual place among its keys, comments kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from agent_orchestrator.config.edit import changed_text, spelled, write_atomically
from agent_orchestrator.config.load import load_text, read

_BEFORE = ("name", "path", "repo", "defaultBranch", "sessionPrefix", "copy", "symlinks", "sparse", "postCreate")
"""A project's keys that `postCreate` and `ci` stand behind, in their usual order."""


def set_commands(
    path: Path,
    project: str,
    set_up: Sequence[str] | None,
    checks: Mapping[str, str] | None,
    environ: Mapping[str, str],
    within: Path | None = None,
) -> None:
    """Set a project's set-up commands and its checks, by name; what is `None` stays as it is, what is empty is removed.

    `within`: the folder that no symlink may lead out of.
    """

    def change(document: Any) -> None:
        section = _section(document, project)
        if set_up is not None:
            _write(section, "postCreate", _flow(CommentedSeq(map(_plain, set_up))) if set_up else None)
        if checks is not None:
            _write(section, "ci", _ci(checks))

    changed = changed_text(read(path), path, change)
    load_text(changed, path, environ)
    write_atomically(path, changed, within)


def _ci(checks: Mapping[str, str]) -> Any:
    """Checks as they are written by hand: one without a name of its own is `{command: …}`."""
    if not checks:
        return None
    each = {name: _flow(CommentedMap({"command": _plain(command)})) for name, command in checks.items()}
    return each["default"] if list(each) == ["default"] else CommentedMap(each)


def _flow(value: Any) -> Any:
    value.fa.set_flow_style()
    return value


def _section(document: Any, project: str) -> Any:
    """The section of a project; one that the file only implies is made."""
    if isinstance(document.get("project"), CommentedMap):
        return document["project"]
    if not isinstance(document.get("projects"), CommentedMap):
        document["projects"] = CommentedMap()
    if not isinstance(document["projects"].get(project), CommentedMap):
        document["projects"][project] = CommentedMap({"path": "."})
    return document["projects"][project]


def _write(section: Any, name: str, value: Any) -> None:
    key = spelled(section, name)
    if value is None:
        if key in section:
            _remove(section, key)
    elif key in section:
        behind = _take_comment(section, key)
        section[key] = value
        _give_comment(section, key, behind)
    else:
        known = [spelled(section, one) for one in _BEFORE if one != name]
        places = [place for place, one in enumerate(section) if one in known]
        before = list(section)[places[-1]] if places else None
        last = before is not None and places[-1] + 1 == len(section)
        behind = _take_comment(section, before) if last else None
        section.insert(places[-1] + 1 if places else 0, name, value)
        _give_comment(section, name, behind)


def _remove(section: Any, key: str) -> None:
    place = list(section).index(key)
    behind = _take_comment(section, key)
    del section[key]
    if behind and place:
        _give_comment(section, list(section)[place - 1], behind)


def _last_leaf(owner: Any, key: Any) -> tuple[Any, Any]:
    """Where the comment behind a value hangs: behind the last thing in it."""
    value = owner[key]
    while isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        owner, key = value, list(value)[-1] if isinstance(value, CommentedMap) else len(value) - 1
        value = owner[key]
    return owner, key


def _slot(owner: Any) -> int:
    return 2 if isinstance(owner, CommentedMap) else 0


def _take_comment(section: Any, key: Any) -> Any:
    """Take the comment behind a value away from it."""
    owner, key = _last_leaf(section, key)
    token = owner.ca.items.get(key)
    if not token or not token[_slot(owner)]:
        return None
    taken, token[_slot(owner)] = token[_slot(owner)], None
    return taken


def _give_comment(section: Any, key: Any, comment: Any) -> None:
    if comment is None:
        return
    owner, key = _last_leaf(section, key)
    owner.ca.items.setdefault(key, [None, None, None, None])[_slot(owner)] = comment


def _plain(command: str) -> str:
    """A command in which nothing is filled in from the environment when the file is read."""
    return command.replace("${", "$${")
