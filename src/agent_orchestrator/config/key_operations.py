"""The basic operations of `old_spellings.py`: rename keys, move them, and report keys that are given twice."""

from __future__ import annotations

import re
import shlex
from typing import Any

from agent_orchestrator.config.problems import ConfigNotes
from agent_orchestrator.config.yaml_tree import Items, Section

_PERMISSIONS = {"permissionless": "full", "skip": "full", "suggest": "default", "auto_edit": "auto-edit"}


_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "<<"})


class KeyConverter:
    """Operations on a file's tree. What cannot be done becomes a problem, what is not used a warning."""

    def __init__(self, notes: ConfigNotes) -> None:
        self._notes = notes

    def _rename_keys(self, section: Section, *, keep_empty: bool = False) -> None:
        """Rename snake_case keys to camelCase, and drop keys without a value."""
        for key in list(section):
            if section[key] is None and not keep_empty:
                section.drop(key)
            elif re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", key):
                self._move_key(section, key, section, to_camel_case(key))

    def _move_key(self, source: Section, key: str, target: Section, name: str, *, quiet: bool = False) -> None:
        """Move a key to another section under a name; report it as given twice if the name is taken, unless `quiet`."""
        line, spelled = source.lines.get(key, source.line), source.spelled.get(key, key)
        if not source.move(key, target, name) and not quiet:
            other = target.spelled.get(name, name)
            self._notes.add_problem(line, spelled, f'given twice: "{other}" in line {target.lines[name]} is the same')

    def _rename_nested_keys(self, owner: Section, key: str) -> None:
        if isinstance(owner.get(key), Section):
            self._rename_keys(owner[key])

    def _env(self, owner: Section) -> None:
        env = owner.get("env")
        if isinstance(env, Section):
            for key in env:
                if env[key] is None:
                    env[key] = ""

    def _split_command(self, owner: Section, key: str) -> None:
        """Split a command written as one text the way a shell would."""
        value = owner.get(key)
        if not isinstance(value, str):
            return
        line = owner.lines[key]
        items = Items()
        try:
            for part in shlex.split(re.sub(r"\{\{\s*(\w+)\s*\}\}", r"{{\1}}", value)):
                if part in _SHELL_WORDS:
                    self._notes.add_problem(line, key, f"no shell reads {part}", f"write {key}: [sh, -c, …]")
                items.add(part, line)
        except ValueError as error:
            self._notes.add_problem(line, key, f"cannot be split into arguments: {error}", "write it as a list")
        owner[key] = items

    def _rename_permissions(self, owner: Section) -> None:
        value = owner.get("permissions")
        if isinstance(value, str):
            owner["permissions"] = _PERMISSIONS.get(value, value)

    def _drop_meaningless(self, section: Section, keys: tuple[str, ...]) -> None:
        for key in keys:
            if key in section:
                line = section.lines[key]
                section.drop(key)
                self._warn_unused_key(line, "", key, "")

    def _warn_unused_key(self, line: int, where: str, key: str, why: str) -> None:
        """Warn that a key has no effect; without a reason, only once per key."""
        name = f"{where}.{key}" if where else key
        text = "has no meaning here and is ignored" + (f" ({why})" if why else "")
        self._notes.add_warning(line, name, text, once=key if not why else f"{where}.{key}.{line}")

    def _fill_empty_sections(self, owner: Section) -> None:
        for key in owner:
            if owner[key] is None:
                owner[key] = Section(owner.lines[key])

    def _map_by_name(self, items: Items, keys: tuple[str, ...], where: str) -> Section:
        """Return a map by id from a list of items, of which each has its id under one of `keys`."""
        by_name = Section(items.lines[0] if items.lines else 1)
        for item, line in zip(items, items.lines, strict=True):
            name = next((item[key] for key in keys if key in item), None) if isinstance(item, Section) else None
            if not isinstance(item, Section) or not isinstance(name, str | int):
                self._notes.add_problem(line, where, "the item has no id", "write - id: a-name")
                continue
            for key in keys:
                if key in item:
                    item.drop(key)
            name = str(name)
            if name in by_name:
                self._notes.add_problem(line, f"{where}.{name}", f"given twice, first in line {by_name.lines[name]}")
            else:
                by_name.put(name, item, line)
        return by_name


def single_key_section(key: str, value: Any, line: int) -> Section:
    """Return a section with one key."""
    section = Section(line)
    section.put(key, value, line)
    return section


def to_camel_case(key: str) -> str:
    """Convert a snake_case key to camelCase."""
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def to_kebab_case(key: str) -> str:
    """Convert a key in any case to the spelling of triggers."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key).replace("_", "-").lower()


def unused_name(name: str, section: Section) -> str:
    """Return the name, with a number if it is taken."""
    count, candidate = 1, name
    while candidate in section:
        count += 1
        candidate = f"{name}-{count}"
    return candidate
