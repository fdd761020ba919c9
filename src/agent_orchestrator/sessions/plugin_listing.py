"""Which plugins there are, where they come from, what they declare, and which are in force. Imports none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator import __version__
from agent_orchestrator.config import trust
from agent_orchestrator.config.load import Loaded
from agent_orchestrator.config.projects.plugin_registry import BUILT_IN, SLOTS, declared_in, installed
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.sessions.plugins import Plugins, named

OURS = "built in"


class PluginListing:
    """All plugins, in force or not."""

    def __init__(self, plugins: Plugins, projects: Projects) -> None:
        self.plugins = plugins
        self.projects = projects

    def list(self) -> list[dict[str, Any]]:
        """Ours by slot, those of installed packages, and the files that configurations name."""
        return [*self._ours(), *self._packages(), *self._files()]

    def _ours(self) -> Iterator[dict[str, Any]]:
        for slot in SLOTS:
            for name in BUILT_IN.get(slot, {}):
                yield _row(slot, name, OURS, __version__)

    def _packages(self) -> Iterator[dict[str, Any]]:
        wanted = {pair: one.id for one in self.plugins.config.projects() for pair in named(one)}
        for slot in SLOTS:
            for name, code in installed(slot).items():
                if name in BUILT_IN.get(slot, {}):
                    why = "one of ours has that name"
                else:
                    why = "" if (slot, name) in wanted else "no configuration that you trust names it"
                yield _row(slot, name, code.origin, code.version, code.permissions, code.digest, why)

    def _files(self) -> Iterator[dict[str, Any]]:
        known = {path: made for one in self.plugins.registries() for path, made in one.known().items()}
        failed = [error.text for one in self.plugins.registries() for error in one.failed]
        for file in self.plugins.config.files:
            loaded = self.plugins.config.loaded(file)
            for path in _paths(loaded, self.plugins) if loaded else ():
                slot, name = known.get(str(path), ("", path.stem.replace("_", "-")))
                trusted = loaded is not None and self.projects.trusts(loaded)
                wrong = next((text for text in failed if str(path) in text), "")
                why = wrong or ("" if trusted else "not trusted: ao trust")
                yield _row(slot, name, str(path), "", declared_in(path), trust.sha256(path), why)


def _paths(loaded: Loaded, plugins: Plugins) -> list[Path]:
    around = plugins.config.around(loaded)
    return [path for path in trust.code(loaded, around) if path.suffix == ".py"]


def _row(
    slot: str,
    name: str,
    origin: str,
    version: str,
    permissions: tuple[str, ...] | None = None,
    digest: str = "",
    problem: str = "",
) -> dict[str, Any]:
    return {
        "slot": slot or None,
        "name": name,
        "origin": origin,
        "version": version or None,
        "permissions": None if permissions is None else list(permissions),
        "digest": digest or None,
        "inForce": not problem,
        "problem": problem or None,
    }
