"""Merge an imported configuration into a file of ours. Values of the file win unless they are to be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml.scalarstring import LiteralScalarString

from agent_orchestrator.config.edit import edit_text, key_in_file
from agent_orchestrator.config.importers.key_report import ImportedConfig, KeyReport
from agent_orchestrator.config.load import load_text
from agent_orchestrator.config.units import quote_value


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The file's text after the merge, and the report."""

    text: str
    entries: tuple[KeyReport, ...]
    warnings: tuple[str, ...]


def merge_import(
    brought: ImportedConfig,
    text: str,
    path: Path,
    environ: Mapping[str, str],
    *,
    overwrite: bool = False,
    source: str = "",
) -> ImportResult:
    """Merge an imported configuration into a file's text and keep comments. Raises `ConfigError` if the result does not load."""
    merging = _ImportWriter(brought, overwrite)
    head = f"# Imported from {source}. All keys: ao config-help\n" if source and not text.strip() else text
    new = edit_text(head, path, merging.write_into) if brought.config else text
    loaded = load_text(new, path, environ)
    return ImportResult(new, tuple(merging.entries()), loaded.warnings)


class _ImportWriter:
    """Writer of values into a document that remembers which of the document's own values it kept."""

    def __init__(self, brought: ImportedConfig, overwrite: bool) -> None:
        self._brought = brought
        self._overwrite = overwrite
        self._new_prefixes: dict[str, str] = {}
        """Prefix of an imported key, and its replacement in this file."""
        self._kept_reasons: dict[str, str] = {}

    def write_into(self, document: Any) -> None:
        """Write all values into the document."""
        for key, value in self._match_projects(document).items():
            self._put(document, key, value, key)

    def _match_projects(self, document: Any) -> dict[str, Any]:
        """Return the configuration with its project under the id of the file's project for the same folder, or of its only project."""
        config = dict(self._brought.config)
        own = document.get("projects")
        if isinstance(own, Mapping) and own and "project" in config:
            if len(own) == 1:
                name = str(next(iter(own)))
                config["projects"] = {name: config.pop("project")}
                self._new_prefixes["project"] = f"projects.{name}"
            else:
                config.pop("project")
                self._kept_reasons["project"] = "the file has several projects: write it to the one that is meant"
        imported = config.get("projects")
        if isinstance(imported, dict) and isinstance(document.get("project"), Mapping) and len(imported) == 1:
            name, project = next(iter(config.pop("projects").items()))
            config["project"] = {key: value for key, value in project.items() if key != "path"}
            self._new_prefixes[f"projects.{name}"] = "project"
        elif isinstance(imported, dict) and isinstance(own, Mapping):
            ids_by_path = {
                str(project_section.get("path", ".")): str(project_id)
                for project_id, project_section in own.items()
                if isinstance(project_section, Mapping)
            }
            config["projects"] = {
                ids_by_path.get(str(project_section.get("path", ".")), name): project_section
                for name, project_section in imported.items()
            }
            for name, project_section in imported.items():
                own_id = ids_by_path.get(str(project_section.get("path", ".")), name)
                if own_id != name:
                    self._new_prefixes[f"projects.{name}"] = f"projects.{own_id}"
        return config

    def _put(self, owner: Any, key: str, value: Any, path: str) -> None:
        own_key = key_in_file(owner, key)
        present_value = owner.get(own_key)
        if isinstance(value, dict) and (present_value is None or isinstance(present_value, Mapping)):
            if present_value is None:
                owner[own_key] = {}
            for child_key, child in value.items():
                self._put(owner[own_key], child_key, child, f"{path}.{child_key}")
            return
        if present_value is not None and present_value != value and not self._overwrite:
            self._kept_reasons[path] = f"the file says {quote_value(present_value)}"
            return
        if present_value != value:
            owner[own_key] = _with_text_blocks(value)

    def entries(self) -> list[KeyReport]:
        """Return what became of each key in this file."""
        return [self._final_entry(entry) for entry in self._brought.entries]

    def _final_entry(self, entry: KeyReport) -> KeyReport:
        for old, new in self._new_prefixes.items():
            if entry.to == old or entry.to.startswith(f"{old}."):
                entry = replace(entry, to=new + entry.to.removeprefix(old), outcome="changed")
                break
        for path, why in self._kept_reasons.items():
            if entry.to and (entry.to == path or entry.to.startswith(f"{path}.")):
                return replace(entry, outcome="kept", note=why)
        return entry


def _with_text_blocks(value: Any) -> Any:
    """Return a value with long texts as YAML blocks."""
    if isinstance(value, str) and "\n" in value:
        return LiteralScalarString(value if value.endswith("\n") else value + "\n")
    if isinstance(value, dict):
        return {key: _with_text_blocks(item) for key, item in value.items()}
    return [_with_text_blocks(item) for item in value] if isinstance(value, list) else value
