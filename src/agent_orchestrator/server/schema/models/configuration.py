"""The models of answers about configuration files: their values, trust in them, and imports from other tools."""

from __future__ import annotations

from typing import Any, Literal

from agent_orchestrator.server.schema.models.answer import Answer


class Trust(Answer):
    """Commands that came with a repository, and whether they may run."""

    project: str
    commands: list[Any]
    digest: str
    trusted: bool


class Value(Answer):
    """A value of the configuration, and the file it stands in."""

    key: str
    value: Any
    file: str | None


class Validity(Answer):
    """What a check of a configuration found."""

    valid: bool
    errors: list[Any]
    warnings: list[Any]


class ImportedKey(Answer):
    """What became of one key of another orchestrator's configuration."""

    key: str
    outcome: Literal["taken", "changed", "dropped", "kept"]
    to: str
    note: str


class Imported(Answer):
    """A configuration that was taken over, and the file as it is with it."""

    kind: str
    source: str
    file: str
    written: bool
    itself: bool
    """It is the configuration here already, and loads as it is."""
    text: str
    entries: list[ImportedKey]
    warnings: list[str]
    commands: list[str]
    """What the file would run or open that it does not yet, as `ao trust` shows it."""
    digest: str
    """Of what is shown here: to have it written, send it back once a person has read `commands`. Empty: not needed."""
