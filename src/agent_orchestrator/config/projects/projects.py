"""The registered projects: which configuration applies to each, and whether the commands in it are trusted."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.base.home import Home
from agent_orchestrator.config import trust
from agent_orchestrator.config.config_set import ConfigSet, repository_of, slug
from agent_orchestrator.config.detection.proposal import proposal_digest
from agent_orchestrator.config.detection.repository import default_branch, detect_repository
from agent_orchestrator.config.edit import initial_text, write_atomically
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.load import LoadedConfig, find_config_file, in_workspace, load_file, load_text
from agent_orchestrator.config.projects.default_agent import default_agent
from agent_orchestrator.config.projects.folders import clone_repository, resolve_folder
from agent_orchestrator.config.projects.plugin_registry import PluginInfo
from agent_orchestrator.config.projects.tracked_files import is_tracked
from agent_orchestrator.config.projects.trusted_files import TrustedFiles, describe_powers
from agent_orchestrator.config.schema import update_schema_file
from agent_orchestrator.config.units import QuietPeriod
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.errors import (
    AoError,
    ConfigError,
    Conflict,
    Denied,
    NotFound,
    UsageError,
)
from agent_orchestrator.protocols.host import Host

T = TypeVar("T")

CONFIG_NAME = "agent-orchestrator.yaml"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Where a command was given."""

    cwd: Path | None = None
    config: Path | None = None
    only: str | None = None
    """The only project that the caller may see; None: all projects."""
    shows_notices: bool = False
    """Whether the result is shown to a person."""


NO_CONTEXT = CommandContext()


class Projects:
    """The projects of this home: registration, reloading and trust."""

    def __init__(
        self, flow: Flow, home: Home, host: Host, config: ConfigSet, trusted_files: TrustedFiles, watch: FileWatcher
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.config = config
        self.watch = watch
        self.trusted_files = trusted_files
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._watched: set[Path] = set()
        self._registration_lock = asyncio.Lock()
        self._tasks = Tasks()
        self._shown_warnings: dict[Path, LoadedConfig] = {}
        """The files whose warnings were already shown to a person, with the content that was shown."""
        trusted_files.start_using_facts()
        config.apply_trust_change()

    async def start(self) -> None:
        """Load the projects recorded in the event log. A file with errors is logged and does not keep the daemon from starting."""
        await self._load_or_log(self.home.config, self.config.load_home)
        self.config.mark_unreadable(self.home.config)
        self._watch(self.home.config)
        removed = {project.id for project in self.flow.home.projects.values() if project.removed}
        for project in self.flow.home.projects.values():
            if project.removed:
                continue
            file = Path(project.config) if project.config else None
            file = file if file and file.exists() else None
            if file and self.config.loaded(file) is None:
                await self._load_or_log(file, partial(self.config.add, file, removed))
                self.config.mark_unreadable(file)
                self._watch(file)
            if self.config.project(project.id) is None:
                unread = file if file and self.config.loaded(file) is None else None
                await self._load_or_log(None, partial(self.config.add_adhoc, project.id, Path(project.path), unread))

    async def announce_proof(self, gate: Callable[[str, e.Notified], e.Body]) -> None:
        """Notify once for each project that an earlier version registered: its set-up can be proven. `gate` applies quiet hours."""
        for project in list(self.flow.home.projects.values()):
            if project.is_setup_check_announced or project.removed:
                continue
            text = f"Checks compare failures with the base branch per test now. Prove the set-up of {project.path}: ao init --check"
            notice = e.Notified("check-not-set-up", f"{project.id}: prove the set-up once", text, "action")
            registered = e.ProjectRegistered(project.path, project.config, announced=True)
            body = gate(project.id, notice)
            await self.flow.append(self._event(registered, project.id), self._event(body, project.id))

    async def load_startup_file(self, file: Path) -> None:
        """Load the file that the daemon is started with; raise `AoError` if it has errors."""
        await self._load_checked(file, partial(self.config.add, file))

    async def _load_checked(self, file: Path, load_file: Callable[[], T]) -> T:
        """Record whether the file is the user's own, then load it by `load_file`. Errors on the way are recorded as errors of that file."""
        with self.config.recording_errors(file):
            await self._trust_own_file(file)
            return load_file()

    async def _load_or_log(self, file: Path | None, load_file: Callable[[], object]) -> None:
        try:
            await self._load_checked(file, load_file) if file else load_file()
        except AoError as error:
            log.warning("a configuration is not in force", error=str(error))
        except Exception:
            log.exception("a project is not in force")

    # -- finding -------------------------------------------------------------------------------------------------------

    async def resolve(self, context: CommandContext, project: str | None = None, *, adopt: bool = False) -> str | None:
        """Register the configuration at `context` and return the id of the project that a command is about, or None.

        With `adopt`, a repository without a configuration is registered too. Raises `NotFound` for a project that the caller may not see.
        """
        if context.only is not None:
            if project not in (None, context.only):
                raise NotFound(f"no project {project}", f"you may ask for {context.only}: leave the project out")
            return context.only
        async with self._registration_lock:
            try:
                await self._register(context)
            except ConfigError:
                if adopt:
                    raise  # without `adopt` the caller only reads, and a notice reports the error
        config = self._require(project) if project is not None else self._project_at(context.cwd)
        if config is None and adopt and context.cwd is not None:
            config = await self._adopt(context.cwd)
        if config is not None and adopt:
            await self._refuse_embedded(config)
        if config is not None and adopt and config.file != self.home.config:
            await self._record_registrations([config])  # it may have failed when the file was loaded, or without a log
        return config.id if config else None

    def _project_at(self, cwd: Path | None) -> ProjectConfig | None:
        return (self._project_of_workspace(cwd) or self.config.project_at(cwd)) if cwd else None

    def _require(self, name: str) -> ProjectConfig:
        if config := self.config.project(name):
            return config
        project_ids = [project.id for project in self.config.projects()]
        raise NotFound(
            f"no project {name}", f"known: {', '.join(project_ids)}" if project_ids else "add one: ao add-project PATH"
        )

    def _project_of_workspace(self, cwd: Path) -> ProjectConfig | None:
        forms = (f"{cwd}/", f"{cwd.resolve()}/")
        for facts in self.flow.sessions.values():
            inside = f"{facts.spec.path}/"
            if any(form.startswith(inside) for form in forms):
                return self.config.project(facts.project)
        return None

    async def _register(self, context: CommandContext) -> None:
        """Load or reload the configuration file for the caller's folder."""
        if context.cwd is None and context.config is None:
            return
        environ = {"AO_CONFIG": str(context.config)} if context.config else {}
        workspaces = (self.home.worktrees, *self.config.workspaces())
        file = find_config_file(
            context.cwd or Path("/"), {**_expansion_variables(), **environ}, self.home.path, workspaces
        )
        if file is None or file == self.home.config:
            return
        loaded = self.config.loaded(file)
        if loaded is None:
            await self._load_new(file)
        elif self._stamp(file) != self._stamps.get(file):
            await self._reload_or_keep(file)

    async def _load_new(self, file: Path) -> None:
        """Load a file for the first time and register its projects, except those that a person removed."""
        removed = {project.id for project in self.flow.home.projects.values() if project.removed}
        await self._load_checked(file, partial(self.config.add, file, removed))
        self._watch(file)
        await self._record_registrations(project for project in self.config.projects() if project.file == file)

    async def _record_registrations(self, projects: Iterable[ProjectConfig]) -> None:
        """Record projects that the event log does not know with this path and file."""
        events = []
        for project in projects:
            registered = self.flow.home.projects.get(project.id)
            path, file = str(project.path), str(project.file) if project.file else None
            if registered is None or registered.removed or (registered.path, registered.config) != (path, file):
                announced = registered is None or registered.is_setup_check_announced
                events.append(self._event(e.ProjectRegistered(path, file, announced), project.id))
        if events:
            await self.flow.append(*events)
            self.flow.listeners.emit(ConfigurationReloaded())

    async def _adopt(self, folder: Path) -> ProjectConfig:
        """Register a repository without a configuration file, with the default settings."""
        root = repository_of(folder)
        if root is None or in_workspace(folder, (self.home.worktrees, *self.config.workspaces())):
            raise UsageError(
                f"{folder} is not in a Git repository", "go to one, make one by git init, or name a project: -p P"
            )
        name = slug(root.name)
        number = 1
        while (existing := self.config.project(name)) and existing.path != root:
            number += 1
            name = f"{slug(root.name)}-{number}"
        return self.config.add_adhoc(name, root)

    async def _refuse_embedded(self, project: ProjectConfig) -> None:
        """Refuse a bare repository that is part of another one.

        It came with the outer repository, and so did the programs that its Git configuration makes Git run.
        """
        layout = find_layout(project.path)
        if layout is not None and layout.top is None and await is_tracked(self.host, layout.git_dir / "HEAD"):
            raise Denied(
                f"{project.path} is part of the repository around it, and what its Git configuration names would be run",
                "clone it, and work in the clone",
            )

    # -- files that change ---------------------------------------------------------------------------------------------

    def _watch(self, file: Path) -> None:
        self._stamps[file] = self._stamp(file)
        if file not in self._watched and file.parent.is_dir():
            self._watched.add(file)
            self.watch.watch_entry(file, lambda: self._on_file_change(file))

    def _stamp(self, file: Path) -> tuple[int, int]:
        try:
            status = file.stat()
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_size)

    def _on_file_change(self, file: Path) -> None:
        self._tasks.spawn(self._reload_if_changed(file))

    async def _reload_if_changed(self, file: Path) -> None:
        async with self._registration_lock:
            if self._stamp(file) != self._stamps.get(file) and file.exists():
                try:
                    await self._reload_or_keep(file)
                except AoError as error:
                    log.warning(
                        "a configuration could not be read again; it is when it is next needed", error=str(error)
                    )

    async def _reload_or_keep(self, file: Path) -> None:
        """Reload a file; if it has errors, keep its last good content in force. A notice reports the error to people who work there."""
        try:
            await self._reload(file)
        except ConfigError as error:
            log.warning("a configuration is broken; its last good content stays in force", error=str(error))

    async def _reload(self, file: Path) -> None:
        self._stamps[file] = self._stamp(file)
        try:
            changes = await self._load_checked(file, partial(self.config.reload, file))
        except ConfigError as error:
            await self.flow.append(self._event(e.ConfigurationBroken(str(file), error.text)))
            raise
        except AoError:
            self._stamps.pop(file)  # the error is not in the file, so it is read again
            raise
        if changes or str(file) in self.flow.home.unreadable_configs:
            await self.flow.append(self._event(e.ConfigurationChanged(str(file), tuple(changes[:50]))))
        await self._record_registrations(project for project in self.config.projects() if project.file == file)
        self.flow.listeners.emit(ConfigurationReloaded())

    def notices(self, context: CommandContext, *, trust: bool = True) -> list[str]:
        """Return what a person who works at `context` should know about the configuration.

        Warnings are returned once, until the file changes. With `trust`, also return which files wait for trust.
        """
        notices: list[str] = []
        for file in dict.fromkeys((*self.config.files, *self.config.file_errors)):
            loaded, problem = self.config.loaded(file), self.config.file_errors.get(file)
            everywhere = file in (self.home.config, context.config)
            if everywhere or (context.cwd and context.cwd.is_relative_to(file.parent)):
                if problem and file.exists():
                    in_force = "the last good content is in force" if loaded else "it is not in force"
                    notices.append(f"{problem}; {in_force}")
                if loaded and context.shows_notices and self._shown_warnings.get(file) is not loaded:
                    self._shown_warnings[file] = loaded
                    notices += loaded.warnings
                if (
                    loaded
                    and trust
                    and not self.trusts(loaded)
                    and self.trusted_files.is_proposal(loaded, self.config.trust_context(loaded))
                ):
                    notices.append(f"the commands that were detected for {file} are not confirmed yet: ao init --check")
                elif loaded and trust and not self.trusts(loaded):
                    notices.append(f"what {file} would run or open is not in force: read it, then trust it: ao trust")
        return notices

    # -- trust ---------------------------------------------------------------------------------------------------------

    def trusts(self, loaded: LoadedConfig) -> bool:
        """Return whether all powers of a file, and the current content of the code files that it names, are trusted."""
        return self.trusted_files.trusts(loaded, self.config.trust_context(loaded))

    def record_plugin(self, code: PluginInfo) -> None:
        """Record that third-party code is about to be run."""
        name = f"{code.slot} {code.name}".strip()
        body = e.PluginLoaded(name, code.origin, code.version, code.digest, code.permissions)
        self._tasks.spawn(self.flow.append(self._event(body)))

    async def _trust_own_file(self, file: Path) -> None:
        """Record trust in a file, and in the code that it names, if the user wrote it untracked by Git; it stays trusted once committed.

        Code that such a file names is trusted only once this way: tracked code can be changed by any commit, so a change needs trust again.
        """
        stamp = self._stamp(file)
        try:
            loaded = load_file(file, self.config.environ)
        except AoError:
            return  # loading the file reports the error
        around = self.config.trust_context(loaded)
        if not self.trusted_files.untrusted(loaded, around) or self.trusted_files.is_proposal(loaded, around):
            return
        if not await self._is_users_own(file):
            return
        if self._stamp(file) != stamp:
            return  # Git may have removed or rewritten it since: whose content it was is no longer certain
        new = {trust.digest(trust.powers(loaded, around), loaded.path): file}
        for path in trust.code_files(loaded, around):
            if str(path) not in self.flow.home.trusted_commands.values() or await self._is_users_own(path):
                new[trust.code_digest(path)] = path
        await self._trust(
            {**new, **dict.fromkeys(self.trusted_files.removed_walls(loaded, self.config.trust_context(loaded)), file)},
            "own",
        )
        self.trusted_files.store_daemon_trust(loaded)

    def is_proposed(self, project: ProjectConfig) -> bool:
        """Return whether the commands of a project's file were detected and are not confirmed yet."""
        loaded = self.config.loaded(project.file) if project.file else None
        return (
            loaded is not None
            and self.trusted_files.is_proposal(loaded, self.config.trust_context(loaded))
            and not self.trusts(loaded)
        )

    def proposed_commands(self, project: ProjectConfig) -> list[str]:
        """Return what agents could run without asking once the proposed commands are confirmed."""
        loaded = self.config.loaded(project.file) if project.file else None
        section = (loaded.without_secrets or loaded).config.projects.get(project.id) if loaded else None
        return list(section.commands) if section and self.is_proposed(project) else []

    async def _trust(self, digests: Mapping[str, Path], by: str = "person") -> None:
        events = [
            self._event(e.CommandsTrusted(digest, str(file), by), key=f"trust:{digest}")
            for digest, file in digests.items()
            if digest and digest not in self.flow.home.trusted_commands
        ]
        if events:
            await self.flow.append(*events)
        self.config.apply_trust_change()

    async def _is_users_own(self, file: Path) -> bool:
        """Return whether a file is the user's own. Files in the home are, even if the user keeps the home in a repository of their own, but
        not files that were cloned into it.
        """
        within = self.home.path.resolve() if file.is_relative_to(self.home.path) else None
        return not await is_tracked(self.host, file, within)

    def trusted_authors(self, project: str) -> tuple[str, ...]:
        """Return the authors whose comments reach a project's agents although they may not write to its repository."""
        config = self.config.project(project)
        return config.trusted_authors if config else ()

    def quiet_hours(self, project: str) -> QuietPeriod | None:
        """Return the time of day when only urgent notifications of a project are sent, or None."""
        config = self.config.project(project)
        return config.quiet if config else None

    def untrusted_powers(
        self,
        project: ProjectConfig,
        profile: str | None,
        *,
        ci: bool = False,
        reactions: bool = False,
        coordinator: bool = False,
    ) -> str:
        """Return the untrusted powers that a session of this project would use, as text, or "" if there are none."""
        loaded = self.config.loaded(project.file) if project.file else None
        if loaded is None:
            return ""
        used = {"ci": ci, "reactions": reactions, "coordinator": coordinator}
        return self.trusted_files.untrusted_powers(loaded, self.config.trust_context(loaded), project.id, used, profile)

    def untrusted_use(self, facts: SessionFacts) -> str:
        """Return which untrusted settings of its repository a session would use, as text, or "" if there are none."""
        project = self.config.project(facts.project)
        return self.untrusted_powers(project, facts.spec.profile) if project else ""

    async def check_trust(
        self,
        project: ProjectConfig,
        profile: str | None,
        *,
        ci: bool = False,
        reactions: bool = False,
        coordinator: bool = False,
    ) -> None:
        """Raise `Denied` if this session would use powers that came with the repository and are not trusted.

        Only what this session would use is checked. Also raise `Conflict` if a file exists but could not be read: it may demand walls.
        """
        self.config.require_readable(project)
        untrusted_powers = partial(
            self.untrusted_powers, project, profile, ci=ci, reactions=reactions, coordinator=coordinator
        )
        if untrusted_powers() and project.file:
            await self._trust_own_file(project.file)  # the user may have edited their own code since the file was read
        if (used := untrusted_powers()) and self.is_proposed(project):
            raise Denied(
                f"the commands that were detected for {project.id} are not confirmed yet ({used})",
                f"trust and prove them: ao init --check {project.path}, or trust them alone: ao trust",
            )
        if used:
            raise Denied(
                f"{project.file} came with the repository and would run commands of its own, or open something of yours ({used})",
                "read it, then trust it: ao trust",
            )

    async def trust(
        self, path: str | None, context: CommandContext, *, preview: bool, shown_digest: str = ""
    ) -> dict[str, Any]:
        """Return what a configuration would run and open, and trust it unless `preview`.

        `shown` is the digest of what the person saw; raise `Conflict` if the content differs from that.
        """
        folder = context.cwd if path is None else resolve_folder(path, context.cwd)
        name = await self.resolve(CommandContext(folder, context.config), adopt=True)
        project = self.config.project(name or "")
        loaded = self.config.loaded(project.file) if project and project.file else None
        if project is None or project.file is None or loaded is None:
            raise NotFound(
                "there is no configuration here to trust",
                "it is needed only where agent-orchestrator.yaml has commands",
            )
        around = self.config.trust_context(loaded)
        powers, code = (
            self.trusted_files.powers_of(loaded, self.config.trust_context(loaded)).powers,
            trust.code_files(loaded, around),
        )
        removed_walls = self.trusted_files.removed_walls(loaded, self.config.trust_context(loaded))
        digests = {
            trust.digest(powers, loaded.path): project.file,
            **{trust.code_digest(code_path): code_path for code_path in code},
        }
        digests |= dict.fromkeys(removed_walls, project.file)
        whole = trust.digest({"all": sorted(digests)}) if powers or code or removed_walls else ""
        trusted = not self.trusted_files.untrusted(loaded, self.config.trust_context(loaded))
        if not preview:
            if shown_digest and shown_digest != whole:
                raise Conflict(
                    f"{project.file}, or code that it names, changed since it was shown", "read it again: ao trust"
                )
            walls = [wall for wall, is_kept in trust.walls(loaded).items() if is_kept]
            wall_digests = {trust.wall_digests(wall, loaded.path)[0]: project.file for wall in walls}
            await self._trust({**digests, **wall_digests})
            self.trusted_files.store_daemon_trust(loaded)
            trusted = True
            await self._reload_trusted(project.file)
        return {
            "project": project.id,
            "file": str(project.file),
            "commands": [
                *describe_powers(powers, code),
                *describe_powers({"takes away": list(removed_walls.values())} if removed_walls else {}, ()),
            ],
            "digest": whole,
            "trusted": trusted,
        }

    async def _reload_trusted(self, file: Path) -> None:
        """Reload a file so that the parts that waited for trust come into force."""
        await self._load_or_log(file, partial(self.config.reload, file))
        await self._record_registrations(project for project in self.config.projects() if project.file == file)
        self.flow.listeners.emit(ConfigurationReloaded())

    # -- what people ask for -------------------------------------------------------------------------------------------

    async def list(self) -> list[dict[str, Any]]:
        """Return all projects as JSON data."""
        return [self._json(project) for project in self.config.projects()]

    def _json(self, project: ProjectConfig) -> dict[str, Any]:
        loaded = self.config.loaded(project.file) if project.file else None
        powers = self.trusted_files.powers_of(loaded, self.config.trust_context(loaded)).powers if loaded else {}
        sessions = [facts for facts in self.flow.sessions.values() if facts.project == project.id and not facts.stopped]
        return {
            "id": project.id,
            "name": project.name,
            "path": str(project.path),
            "repo": project.repo,
            "defaultBranch": project.default_branch or default_branch(project.path),
            "config": str(project.file) if project.file else None,
            "trusted": self.trusts(loaded) if loaded and powers else None,
            "sessions": len(sessions),
        }

    async def add(self, path: str | None, url: str | None, context: CommandContext, *, init: bool) -> dict[str, Any]:
        """Register a repository. A URL is cloned first; `init` writes a configuration if there is none."""
        folder = (
            await clone_repository(self.host, url, context.cwd or self.home.repositories)
            if url
            else resolve_folder(path or ".", context.cwd)
        )
        root = repository_of(folder) if folder.is_dir() else None
        if root is None:
            problem = "is not a Git repository" if folder.is_dir() else "is not there"
            raise UsageError(f"{folder} {problem}", "name a repository, or make one by git init")
        created = await self._init(root) if init else None
        await self._readmit(root)
        name = await self.resolve(CommandContext(folder, context.config), adopt=True)
        project = self.config.project(name or "")
        assert project is not None
        if project.file:
            self._shown_warnings.pop(project.file, None)
        return {**self._json(project), "created": str(created) if created else None, "agent": project.agent}

    async def _init(self, root: Path) -> Path | None:
        """Write a first configuration for a repository without one, and return its path; None if there is one already."""
        layout = find_layout(root)
        existing = [name for name in (CONFIG_NAME, "agent-orchestrator.yml") if (root / name).exists()]
        if existing or layout is None or layout.top is None:
            return None
        file = root / CONFIG_NAME
        if file.is_symlink():  # the repository would decide where in the user's home a file is written
            raise Conflict(f"{file} is a symlink to what is not there", "remove it, or make what it leads to")
        update_schema_file(self.home.schema)
        text = initial_text(slug(root.name), detect_repository(root), default_agent(self.host), schema=self.home.schema)
        loaded = load_text(text, file, self.config.environ)
        if digest := proposal_digest(trust.powers(loaded, self.config.trust_context(loaded)), file):
            await self.flow.append(self._event(e.CommandsProposed(digest, str(file)), key=f"proposed:{digest}"))
        write_atomically(file, text, root)
        return file

    async def _readmit(self, root: Path) -> None:
        """Register a removed project again that a person adds again."""
        for project in self.flow.home.projects.values():
            if project.removed and Path(project.path) == root:
                registered = e.ProjectRegistered(project.path, project.config, announced=True)
                await self.flow.append(self._event(registered, project.id))
                if project.config:
                    self.config.remove(Path(project.config))

    async def remove(self, name: str) -> dict[str, Any]:
        """Remove a project. Its sessions must be stopped; the repository itself is not changed."""
        self._require(name)
        live = [facts.id for facts in self.flow.sessions.values() if facts.project == name and not facts.stopped]
        if live:
            raise Conflict(
                f"{name} has sessions that are not stopped: {', '.join(live)}", f"stop them: ao stop -p {name} --all"
            )
        await self.flow.append(self._event(e.ProjectRemoved(), name))
        self.config.remove_project(name)
        self.flow.listeners.emit(ConfigurationReloaded())
        return {"removed": name}

    def _event(self, body: e.Body, project: str | None = None, key: str | None = None) -> Event:
        return Event(body, self.flow.clock(), "person", key or uuid.uuid4().hex, project)


def _expansion_variables() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name != "AO_CONFIG"}
