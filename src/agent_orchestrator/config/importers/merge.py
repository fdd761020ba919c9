"""A configuration that was brought over, put into a file of ours: what the file says itself wins, unless it is to be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml.scalarstring import LiteralScalarString

from agent_orchestrator.config.edit import changed_text, spelled
from agent_orchestrator.config.importers.key_report import Brought, Entry
from agent_orchestrator.config.load import load_text
from agent_orchestrator.config.values import shown


@dataclass(frozen=True, slots=True)
class Merged:
    """The file as it would be."""

    text: str
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...]


def merge(
    brought: Brought, text: str, path: Path, environ: Mapping[str, str], *, overwrite: bool = False, source: str = ""
) -> Merged:
    """Put it into a file's text, comments kept. Raises `ConfigError` where the outcome would be none that loads."""
    placed = _Placed(brought, overwrite)
    head = f"# Imported from {source}. All keys: ao config-help\n" if source and not text.strip() else text
    new = changed_text(head, path, placed.into) if brought.config else text
    loaded = load_text(new, path, environ)
    return Merged(new, tuple(placed.entries()), loaded.warnings)


class _Placed:
    """Puts values into a document, and remembers which of its own it kept."""

    def __init__(self, brought: Brought, overwrite: bool) -> None:
        self._brought = brought
        self._overwrite = overwrite
        self._moved: dict[str, str] = {}
        """Beginning of a key → what it is in this file."""
        self._kept: dict[str, str] = {}

    def into(self, document: Any) -> None:
        """Put all of it into the document."""
        for key, value in self._at_home(document).items():
            self._put(document, key, value, key)

    def _at_home(self, document: Any) -> dict[str, Any]:
        """A project is the one that the file has for the same folder, or its only one."""
        config = dict(self._brought.config)
        own = document.get("projects")
        if isinstance(own, Mapping) and own and "project" in config:
            if len(own) == 1:
                name = str(next(iter(own)))
                config["projects"] = {name: config.pop("project")}
                self._moved["project"] = f"projects.{name}"
            else:
                config.pop("project")
                self._kept["project"] = "the file has several projects: write it to the one that is meant"
        given = config.get("projects")
        if isinstance(given, dict) and isinstance(document.get("project"), Mapping) and len(given) == 1:
            name, project = next(iter(config.pop("projects").items()))
            config["project"] = {key: value for key, value in project.items() if key != "path"}
            self._moved[f"projects.{name}"] = "project"
        elif isinstance(given, dict) and isinstance(own, Mapping):
            here = {str(one.get("path", ".")): str(each) for each, one in own.items() if isinstance(one, Mapping)}
            config["projects"] = {here.get(str(one.get("path", ".")), name): one for name, one in given.items()}
            for name, one in given.items():
                known = here.get(str(one.get("path", ".")), name)
                if known != name:
                    self._moved[f"projects.{name}"] = f"projects.{known}"
        return config

    def _put(self, owner: Any, key: str, value: Any, path: str) -> None:
        place = spelled(owner, key)
        known = owner.get(place)
        if isinstance(value, dict) and (known is None or isinstance(known, Mapping)):
            if known is None:
                owner[place] = {}
            for inner, one in value.items():
                self._put(owner[place], inner, one, f"{path}.{inner}")
            return
        if known is not None and known != value and not self._overwrite:
            self._kept[path] = f"the file says {shown(known)}"
            return
        if known != value:
            owner[place] = _written(value)

    def entries(self) -> list[Entry]:
        """What became of each key, in this file."""
        return [self._now(entry) for entry in self._brought.entries]

    def _now(self, entry: Entry) -> Entry:
        for old, new in self._moved.items():
            if entry.to == old or entry.to.startswith(f"{old}."):
                entry = replace(entry, to=new + entry.to.removeprefix(old), outcome="changed")
                break
        for path, why in self._kept.items():
            if entry.to and (entry.to == path or entry.to.startswith(f"{path}.")):
                return replace(entry, outcome="kept", note=why)
        return entry


def _written(value: Any) -> Any:
    """Long texts as blocks of lines."""
    if isinstance(value, str) and "\n" in value:
        return LiteralScalarString(value if value.endswith("\n") else value + "\n")
    if isinstance(value, dict):
        return {key: _written(one) for key, one in value.items()}
    return [_written(one) for one in value] if isinstance(value, list) else value
