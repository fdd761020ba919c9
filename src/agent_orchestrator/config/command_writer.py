"""Write a project's `postCreate` and `ci` into a file, each in its usual position among the keys, with comments kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from agent_orchestrator.config.edit import edit_text, key_in_file, write_atomically
from agent_orchestrator.config.load import load_text, read_config_text

_KEY_ORDER = ("name", "path", "repo", "defaultBranch", "sessionPrefix", "copy", "symlinks", "sparse", "postCreate")
"""The keys of a project that come before `postCreate` and `ci`, in their usual order."""


def set_commands(
    path: Path,
    project: str,
    set_up: Sequence[str] | None,
    checks: Mapping[str, str] | None,
    environ: Mapping[str, str],
    within: Path | None = None,
) -> None:
    """Set a project's set-up commands and its checks, by name.

    `None` leaves them as they are, an empty value removes them. `within`: the folder that no symlink may leave.
    """

    def change(document: Any) -> None:
        section = _section(document, project)
        if set_up is not None:
            _write_key(
                section,
                "postCreate",
                _with_flow_style(CommentedSeq(map(_escape_variables, set_up))) if set_up else None,
            )
        if checks is not None:
            _write_key(section, "ci", _ci(checks))

    changed = edit_text(read_config_text(path), path, change)
    load_text(changed, path, environ)
    write_atomically(path, changed, within)


def _ci(checks: Mapping[str, str]) -> Any:
    """Return checks in the form that people write: a single unnamed one is `{command: …}`."""
    if not checks:
        return None
    entries = {
        name: _with_flow_style(CommentedMap({"command": _escape_variables(command)}))
        for name, command in checks.items()
    }
    return entries["default"] if list(entries) == ["default"] else CommentedMap(entries)


def _with_flow_style(value: Any) -> Any:
    value.fa.set_flow_style()
    return value


def _section(document: Any, project: str) -> Any:
    """Return the section of a project, created if the file only implies it."""
    if isinstance(document.get("project"), CommentedMap):
        return document["project"]
    if not isinstance(document.get("projects"), CommentedMap):
        document["projects"] = CommentedMap()
    if not isinstance(document["projects"].get(project), CommentedMap):
        document["projects"][project] = CommentedMap({"path": "."})
    return document["projects"][project]


def _write_key(section: Any, name: str, value: Any) -> None:
    """Set, insert or (if the value is None) remove a key of a project, with the comments around it kept."""
    key = key_in_file(section, name)
    if value is None:
        if key in section:
            _remove(section, key)
    elif key in section:
        comment = _take_comment(section, key)
        section[key] = value
        _attach_comment(section, key, comment)
    else:
        earlier_keys = [key_in_file(section, candidate) for candidate in _KEY_ORDER if candidate != name]
        positions = [position for position, candidate in enumerate(section) if candidate in earlier_keys]
        previous_key = list(section)[positions[-1]] if positions else None
        is_last = previous_key is not None and positions[-1] + 1 == len(section)
        comment = _take_comment(section, previous_key) if is_last else None
        section.insert(positions[-1] + 1 if positions else 0, name, value)
        _attach_comment(section, name, comment)


def _remove(section: Any, key: str) -> None:
    """Remove a key; the comment after it moves to the key before."""
    position = list(section).index(key)
    comment = _take_comment(section, key)
    del section[key]
    if comment and position:
        _attach_comment(section, list(section)[position - 1], comment)


def _last_leaf(owner: Any, key: Any) -> tuple[Any, Any]:
    """Return the container and key that hold the comment after a value: those of the last entry in it."""
    value = owner[key]
    while isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        owner, key = value, list(value)[-1] if isinstance(value, CommentedMap) else len(value) - 1
        value = owner[key]
    return owner, key


def _comment_slot(owner: Any) -> int:
    return 2 if isinstance(owner, CommentedMap) else 0


def _take_comment(section: Any, key: Any) -> Any:
    """Remove and return the comment after a value, or None."""
    owner, key = _last_leaf(section, key)
    token = owner.ca.items.get(key)
    if not token or not token[_comment_slot(owner)]:
        return None
    comment, token[_comment_slot(owner)] = token[_comment_slot(owner)], None
    return comment


def _attach_comment(section: Any, key: Any, comment: Any) -> None:
    if comment is None:
        return
    owner, key = _last_leaf(section, key)
    owner.ca.items.setdefault(key, [None, None, None, None])[_comment_slot(owner)] = comment


def _escape_variables(command: str) -> str:
    """Return a command with `${` escaped, so that no variables are expanded when the file is read."""
    return command.replace("${", "$${")
