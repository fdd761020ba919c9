"""The configuration commands: read and set values, import another tool's file, validate, explain."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from dataclasses import replace as replace_field
from pathlib import Path
from typing import Any

from agent_orchestrator.base import keyring
from agent_orchestrator.base.home import Home
from agent_orchestrator.config import schema, trust
from agent_orchestrator.config.config_set import repository_of
from agent_orchestrator.config.edit import get_value, set_value, write_atomically
from agent_orchestrator.config.importers import merge_import, read_import
from agent_orchestrator.config.importers.key_report import KeyReport
from agent_orchestrator.config.load import (
    CONFIG_FILE_NAMES,
    LoadedConfig,
    find_config_file,
    in_workspace,
    load_text,
    read_config_text,
)
from agent_orchestrator.config.model import DAEMON_KEYS
from agent_orchestrator.config.problems import InvalidConfig
from agent_orchestrator.config.projects.projects import CommandContext, Projects
from agent_orchestrator.config.projects.tracked_files import is_tracked
from agent_orchestrator.config.projects.trusted_files import describe_powers
from agent_orchestrator.errors import AoError, ConfigError, Conflict, Denied, NotFound


class ConfigurationCommands:
    """The configuration that applies to a caller's folder."""

    def __init__(self, home: Home, projects: Projects) -> None:
        self.home = home
        self.projects = projects

    def _file(self, context: CommandContext) -> Path:
        environ = {**os.environ, "AO_CONFIG": str(context.config) if context.config else ""}
        workspaces = (self.home.worktrees, *self.projects.config.workspaces())
        return find_config_file(context.cwd or self.home.path, environ, self.home.path, workspaces) or self.home.config

    def _symlink_boundary(self, file: Path) -> Path | None:
        """Return the folder that no symlink may leave, or None for the user's own file, which may be anywhere."""
        folder = file.parent.resolve()
        return None if folder == self.home.path.resolve() else repository_of(folder) or folder

    async def get(self, key: str, context: CommandContext) -> dict[str, Any]:
        """Return a value from its file, or its default."""
        file = self._file(context)
        return {"key": key, "value": get_value(file, key, os.environ), "file": str(file)}

    async def set(self, key: str, value: Any, context: CommandContext) -> dict[str, Any]:
        """Change a value and keep comments. A value that would make the file invalid is refused."""
        file = self._file(context)
        text = value if isinstance(value, str) else json.dumps(value)
        set_value(file, key, text, os.environ, self._symlink_boundary(file))
        await self.projects.resolve(context)
        return {"file": str(file), "key": key, "value": get_value(file, key, os.environ)}

    async def import_file(
        self,
        path: str,
        text: str,
        context: CommandContext,
        *,
        output: str | None,
        replace: bool,
        dry_run: bool,
        shown_digest: str = "",
    ) -> dict[str, Any]:
        """Import another orchestrator's configuration into the file here, or into `output`, and report what became of each key.

        The report also lists what the result would run or open. If the source is not the user's own file, `shown` must be the digest of
        the list that a person saw.
        """
        here = context.cwd or self.home.path
        source, target = here / path, here / output if output else self._repository_file(context)
        imported = read_import(text, source, target.parent)
        is_same_file = target.exists() and source.exists() and target.samefile(source)
        before = read_config_text(target) if target.exists() and not is_same_file else ""
        merged = merge_import(imported, before, target, os.environ, overwrite=replace, source=source.name)
        changes = not is_same_file and merged.text != before
        commands = self._added_powers(merged.text, before, target) if changes else []
        needs_no_consent = not commands or await self._is_users_own(source)
        digest = "" if needs_no_consent else self._digest(merged.text, target)
        will_write = changes and not dry_run
        if will_write:
            if shown_digest != digest and digest:
                raise _not_confirmed(source, target, len(commands), bool(shown_digest))
            write_atomically(target, merged.text, self._symlink_boundary(target))
            await self.projects.resolve(context)
        return {
            "kind": imported.kind,
            "source": str(source),
            "file": str(target),
            "written": will_write,
            "itself": is_same_file,
            "text": merged.text,
            "entries": [asdict(self._with_scope_note(entry, target)) for entry in merged.entries],
            "warnings": list(merged.warnings),
            "commands": commands,
            "digest": digest,
        }

    def _added_powers(self, text: str, before: str, target: Path) -> list[str]:
        """Return what the new text would run, open or decide for the daemon, that the present text does not."""
        try:
            present_lines = self._describe_powers(load_text(before, target, os.environ)) if before else []
        except ConfigError:
            present_lines = []  # an invalid file is not in force
        return [
            line for line in self._describe_powers(load_text(text, target, os.environ)) if line not in present_lines
        ]

    def _describe_powers(self, loaded: LoadedConfig) -> list[str]:
        around = self.projects.config.trust_context(loaded)
        return describe_powers(
            {**trust.daemon_settings(loaded), **trust.powers(loaded, around)}, trust.code_files(loaded, around)
        )

    def _digest(self, text: str, target: Path) -> str:
        loaded = load_text(text, target, os.environ)
        code = [
            trust.code_digest(path) for path in trust.code_files(loaded, self.projects.config.trust_context(loaded))
        ]
        return trust.digest({"text": text, "code": code}, target)

    async def _is_users_own(self, source: Path) -> bool:
        """Return whether the user wrote the file: not tracked by a repository, not in a workspace, and not a pipe."""
        workspaces = (self.home.worktrees, *self.projects.config.workspaces())
        if not source.is_file() or in_workspace(source, workspaces):
            return False
        paths = dict.fromkeys((source, source.resolve()))
        return not any([await is_tracked(self.projects.host, path) for path in paths])

    def _with_scope_note(self, entry: KeyReport, target: Path) -> KeyReport:
        """Return the entry with a note if its key has no effect in that file."""
        home, started_with = self.projects.config.own_files
        if entry.to.partition(".")[0] not in DAEMON_KEYS or entry.note or target in (home, started_with):
            return entry
        return replace_field(entry, note=f"counts only in {home}")

    def _repository_file(self, context: CommandContext) -> Path:
        """Return the configuration file of the repository here, whether or not it exists yet."""
        file, cwd = self._file(context), context.cwd or self.home.path
        if file != self.home.config:
            return file
        root = next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)
        return root / CONFIG_FILE_NAMES[0]

    async def validate(self, path: str | None, text: str | None, context: CommandContext) -> dict[str, Any]:
        """Check a file. The folders of its projects need not exist."""
        file = (context.cwd or Path("/")) / path if path else self._file(context)
        if text is None:
            if not file.exists():
                raise NotFound(f"there is no file {file}", "name one, or make one: ao init")
            text = read_config_text(file)
        try:
            loaded = load_text(text, file, os.environ)
            if loaded.has_unread_secrets and (self.projects.trusts(loaded) or await self._is_users_own(file)):
                loaded = load_text(text, file, os.environ, keyring.read)
            loaded = self.projects.config.with_scope_warning(loaded)
        except InvalidConfig as error:
            problems = [problem.line_with_remedy(str(file)) for problem in error.problems]
            return {"valid": False, "file": str(file), "errors": problems, "warnings": []}
        except ConfigError as error:
            return {"valid": False, "file": str(file), "errors": [str(error)], "warnings": []}
        return {"valid": True, "file": str(file), "errors": [], "warnings": list(loaded.warnings)}

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of `agent-orchestrator.yaml`."""
        return schema.json_schema()

    def help(self) -> str:
        """Return the help text of every key."""
        return schema.help_text()


def _not_confirmed(source: Path, target: Path, commands: int, is_digest_given: bool) -> AoError:
    if is_digest_given:
        return Conflict(
            f"{target}, or code that it would name, changed since it was shown", "read it again: ao import --dry-run"
        )
    return Denied(
        f"{source} is not your own, and with it {target} would run commands or open something of yours ({commands} not seen yet)",
        "read them by ao import --dry-run, then say --yes",
    )
