"""Projects: which repositories are ours, which configuration holds for them, and which of its commands may run."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.base.home import Home
from agent_orchestrator.config import trust
from agent_orchestrator.config.detection.proposal import proposal_digest
from agent_orchestrator.config.detection.repository import default_branch, detect
from agent_orchestrator.config.edit import initial, write_atomically
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.load import Loaded, find, in_workspace, load, load_text
from agent_orchestrator.config.model import Config
from agent_orchestrator.config.projects.plugin_registry import Code, Registry, declared_in
from agent_orchestrator.config.schema import keep_schema
from agent_orchestrator.config.scope import ConfigSet, repository_of, slug
from agent_orchestrator.config.values import Quiet
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import (
    AoError,
    ConfigError,
    Conflict,
    Denied,
    NotFound,
    Temporary,
    UsageError,
    machine_short,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line, visible

T = TypeVar("T")

CONFIG_NAME = "agent-orchestrator.yaml"

PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "aider": "aider",
    "cursor": "cursor-agent",
    "gemini": "gemini",
    "copilot": "copilot",
    "goose": "goose",
    "kimicode": "kimi",
}
"""Agents by the names of their programs, the most usual first."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Context:
    """Where a command was given."""

    cwd: Path | None = None
    config: Path | None = None
    only: str | None = None
    """The one project that whoever gave it may know of."""
    shown: bool = False
    """A person is shown what it is told."""


NOWHERE = Context()


@dataclass(frozen=True, slots=True)
class _Powers:
    """What a file would run or open, as it and the user's own file were when that was asked."""

    loaded: Loaded
    own: Config
    powers: dict[str, Any]
    digests: tuple[str, str]
    """As they were once written down, and as they are now."""
    unwalled: tuple[str, ...]
    """The walls that it does not put around agents."""


class Projects:
    """The projects of this home."""

    def __init__(self, flow: Flow, home: Home, host: Host, config: ConfigSet, watch: Watch) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.config = config
        self.watch = watch
        self.on_reload: list[Callable[[], None]] = []
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._watched: set[Path] = set()
        self._registering = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._found: dict[Path, _Powers] = {}
        self._warned: dict[Path, Loaded] = {}
        """The files of whose warnings a person was told, as they were then."""
        config.trusts = self.trusts
        config.trust_changed()

    async def start(self) -> None:
        """Take up the projects that the log knows. A file that is wrong now does not keep the daemon from starting."""
        await self._try(self.home.config, self.config.load_home)
        self.config.note_unread(self.home.config)
        self._watch(self.home.config)
        removed = {project.id for project in self.flow.home.projects.values() if project.removed}
        for project in self.flow.home.projects.values():
            if project.removed:
                continue
            file = Path(project.config) if project.config else None
            file = file if file and file.exists() else None
            if file and self.config.loaded(file) is None:
                await self._try(file, partial(self.config.add, file, removed))
                self.config.note_unread(file)
                self._watch(file)
            if self.config.project(project.id) is None:
                unread = file if file and self.config.loaded(file) is None else None
                await self._try(None, partial(self.config.add_adhoc, project.id, Path(project.path), unread))

    async def announce_proof(self, gate: Callable[[str, e.Notified], e.Body]) -> None:
        """Notify once for each project that an earlier version registered: its set-up can be proven. `gate` applies quiet hours."""
        for project in list(self.flow.home.projects.values()):
            if project.announced or project.removed:
                continue
            text = f"Checks compare failures with the base branch per test now. Prove the set-up of {project.path}: ao init --check"
            notice = e.Notified("check-not-set-up", f"{project.id}: prove the set-up once", text, "action")
            registered = e.ProjectRegistered(project.path, project.config, announced=True)
            body = gate(project.id, notice)
            await self.flow.append(self._event(registered, project.id), self._event(body, project.id))

    async def take(self, file: Path) -> None:
        """Take up the file that the daemon is started with. Raises what is wrong with it."""
        await self._judged(file, partial(self.config.add, file))

    async def _judged(self, file: Path, take: Callable[[], T]) -> T:
        """Take a file up, once it is known whether it is the user's own. What goes wrong on the way is wrong with that file."""
        with self.config.answering(file):
            await self._note_own(file)
            return take()

    async def _try(self, file: Path | None, take: Callable[[], object]) -> None:
        try:
            await self._judged(file, take) if file else take()
        except AoError as error:
            log.warning("a configuration is not in force", error=str(error))
        except Exception:
            log.exception("a project is not in force")

    # -- finding -------------------------------------------------------------------------------------------------------

    async def resolve(self, context: Context, project: str | None = None, *, adopt: bool = False) -> str | None:
        """The project that a command is about; its configuration is registered. `adopt`: a repository without one too."""
        if context.only is not None:
            if project not in (None, context.only):
                raise NotFound(f"no project {project}", f"you may ask for {context.only}: leave the project out")
            return context.only
        async with self._registering:
            try:
                await self._register(context)
            except ConfigError:
                if adopt:
                    raise  # whoever only looks is told by a notice
        here = self._named(project) if project is not None else self._around(context.cwd)
        if here is None and adopt and context.cwd is not None:
            here = await self._adopt(context.cwd)
        if here is not None and adopt:
            await self._refuse_embedded(here)
        if here is not None and adopt and here.file != self.home.config:
            await self._record([here])  # which failed when it was taken up, or there was no log yet
        return here.id if here else None

    def _around(self, cwd: Path | None) -> ProjectConfig | None:
        return (self._of_workspace(cwd) or self.config.project_at(cwd)) if cwd else None

    def _named(self, name: str) -> ProjectConfig:
        if found := self.config.project(name):
            return found
        known = [project.id for project in self.config.projects()]
        raise NotFound(f"no project {name}", f"known: {', '.join(known)}" if known else "add one: ao add-project PATH")

    def _of_workspace(self, cwd: Path) -> ProjectConfig | None:
        forms = (f"{cwd}/", f"{cwd.resolve()}/")
        for facts in self.flow.sessions.values():
            inside = f"{facts.spec.path}/"
            if any(form.startswith(inside) for form in forms):
                return self.config.project(facts.project)
        return None

    async def _register(self, context: Context) -> None:
        if context.cwd is None and context.config is None:
            return
        environ = {"AO_CONFIG": str(context.config)} if context.config else {}
        workspaces = (self.home.worktrees, *self.config.workspaces())
        file = find(context.cwd or Path("/"), {**_expansion(), **environ}, self.home.path, workspaces)
        if file is None or file == self.home.config:
            return
        known = self.config.loaded(file)
        if known is None:
            await self._take(file)
        elif self._stamp(file) != self._stamps.get(file):
            await self._reload_or_keep(file)

    async def _take(self, file: Path) -> None:
        """A file seen for the first time: its projects are ours, but those that a person took out."""
        removed = {project.id for project in self.flow.home.projects.values() if project.removed}
        await self._judged(file, partial(self.config.add, file, removed))
        self._watch(file)
        await self._record(project for project in self.config.projects() if project.file == file)

    async def _record(self, projects: Iterable[ProjectConfig]) -> None:
        events = []
        for project in projects:
            known = self.flow.home.projects.get(project.id)
            path, file = str(project.path), str(project.file) if project.file else None
            if known is None or known.removed or (known.path, known.config) != (path, file):
                announced = known is None or known.announced
                events.append(self._event(e.ProjectRegistered(path, file, announced), project.id))
        if events:
            await self.flow.append(*events)
            self._tell()

    async def _adopt(self, folder: Path) -> ProjectConfig:
        """A repository without configuration: the defaults hold."""
        root = repository_of(folder)
        if root is None or in_workspace(folder, (self.home.worktrees, *self.config.workspaces())):
            raise UsageError(
                f"{folder} is not in a Git repository", "go to one, make one by git init, or name a project: -p P"
            )
        name = slug(root.name)
        number = 1
        while (taken := self.config.project(name)) and taken.path != root:
            number += 1
            name = f"{slug(root.name)}-{number}"
        return self.config.add_adhoc(name, root)

    async def _refuse_embedded(self, project: ProjectConfig) -> None:
        """A bare repository that is part of another came with that one, and so did the programs that its configuration has Git run."""
        layout = find_layout(project.path)
        if layout is not None and layout.top is None and await tracked(self.host, layout.git_dir / "HEAD"):
            raise Denied(
                f"{project.path} is part of the repository around it, and what its Git configuration names would be run",
                "clone it, and work in the clone",
            )

    # -- files that change ---------------------------------------------------------------------------------------------

    def _watch(self, file: Path) -> None:
        self._stamps[file] = self._stamp(file)
        if file not in self._watched and file.parent.is_dir():
            self._watched.add(file)
            self.watch.entry(file, lambda: self._changed(file))

    def _stamp(self, file: Path) -> tuple[int, int]:
        try:
            status = file.stat()
        except OSError:
            return (0, 0)
        return (status.st_mtime_ns, status.st_size)

    def _changed(self, file: Path) -> None:
        task = asyncio.get_running_loop().create_task(self._reload_quietly(file))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload_quietly(self, file: Path) -> None:
        async with self._registering:
            if self._stamp(file) != self._stamps.get(file) and file.exists():
                try:
                    await self._reload_or_keep(file)
                except AoError as error:
                    log.warning(
                        "a configuration could not be read again; it is when it is next needed", error=str(error)
                    )

    async def _reload_or_keep(self, file: Path) -> None:
        """A broken file leaves its last good content in force; whoever works there is told by a notice."""
        try:
            await self._reload(file)
        except ConfigError as error:
            log.warning("a configuration is broken; its last good content stays in force", error=str(error))

    async def _reload(self, file: Path) -> None:
        self._stamps[file] = self._stamp(file)
        try:
            changes = await self._judged(file, partial(self.config.reload, file))
        except ConfigError as error:
            await self.flow.append(self._event(e.ConfigurationBroken(str(file), error.text)))
            raise
        except AoError:
            self._stamps.pop(file)  # not the file's fault: it is read again
            raise
        if changes or str(file) in self.flow.home.broken:
            await self.flow.append(self._event(e.ConfigurationChanged(str(file), tuple(changes[:50]))))
        await self._record(project for project in self.config.projects() if project.file == file)
        self._tell()

    def _tell(self) -> None:
        for listener in self.on_reload:
            listener()

    def notices(self, context: Context, *, trust: bool = True) -> list[str]:
        """What whoever works here should know about the configuration; its warnings only once, until it changes.

        `trust`: also what waits for trust.
        """
        found: list[str] = []
        for file in dict.fromkeys((*self.config.files, *self.config.broken)):
            loaded, problem = self.config.loaded(file), self.config.broken.get(file)
            everywhere = file in (self.home.config, context.config)
            if everywhere or (context.cwd and context.cwd.is_relative_to(file.parent)):
                if problem and file.exists():
                    in_force = "the last good content is in force" if loaded else "it is not in force"
                    found.append(f"{problem}; {in_force}")
                if loaded and context.shown and self._warned.get(file) is not loaded:
                    self._warned[file] = loaded
                    found += loaded.warnings
                if loaded and trust and not self.trusts(loaded) and self._is_proposal(loaded):
                    found.append(f"the commands that were detected for {file} are not confirmed yet: ao init --check")
                elif loaded and trust and not self.trusts(loaded):
                    found.append(f"what {file} would run or open is not in force: read it, then trust it: ao trust")
        return found

    # -- trust ---------------------------------------------------------------------------------------------------------

    def trusts(self, loaded: Loaded) -> bool:
        """Does somebody stand for every power of a file, and for the code that it names, as that is now?"""
        return not self._untrusted(loaded)

    def _untrusted(self, loaded: Loaded) -> list[str]:
        """The digests that nobody trusts yet."""
        own = loaded.path == self.home.config
        before, now = ("", "") if own else self._looked_at(loaded).digests
        stood_for = self.flow.home.trusted.get(before) == str(loaded.path)  # as it was once written down
        digests = [] if stood_for else [now]
        digests += [trust.content(path) for path in trust.code(loaded, self.config.around(loaded))]
        digests += [] if own else self._taken_away(loaded)
        return [one for one in digests if one and one not in self.flow.home.trusted]

    def _taken_away(self, loaded: Loaded) -> dict[str, str]:
        """The walls that a file put around agents when a person trusted it, and does not now, by what trust to go without is in."""
        trusted = self.flow.home.trusted
        if str(loaded.path.parent) not in map(os.path.dirname, trusted.values()):
            return {}
        pairs = {trust.wall_digests(wall, loaded.path): wall for wall in self._looked_at(loaded).unwalled}
        return {
            without: wall for (put_up, without), wall in pairs.items() if put_up in trusted and without not in trusted
        }

    def _looked_at(self, loaded: Loaded) -> _Powers:
        around, known = self.config.around(loaded), self._found.get(loaded.path)
        if known is None or known.loaded is not loaded or known.own is not around.own:
            powers = trust.powers(loaded, around)
            digests = (trust.digest(powers), trust.digest(powers, loaded.path))
            unwalled = tuple(wall for wall, held in trust.walls(loaded, around.own).items() if not held)
            known = self._found[loaded.path] = _Powers(loaded, around.own, powers, digests, unwalled)
        return known

    def admits(self, path: Path, data: bytes) -> bool:
        """May this file of code be run with this content?"""
        return trust.file_digest(path, data) in self.flow.home.trusted

    def note_plugin(self, code: Code) -> None:
        """Write down that code of others is about to be run."""
        name = f"{code.slot} {code.name}".strip()
        body = e.PluginLoaded(name, code.origin, code.version, code.digest, code.permissions)
        task = asyncio.get_running_loop().create_task(self._append(self._event(body)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, event: Event) -> None:
        await self.flow.append(event)

    async def _note_own(self, file: Path) -> None:
        """What the user wrote untracked is the user's own, and stays so when it is committed.

        Code that a file of his names is his too, once: code that is tracked may be changed by any commit, and is asked about then.
        """
        stamp = self._stamp(file)
        try:
            loaded = load(file, self.config.environ)
        except AoError:
            return  # whoever takes it up says what is wrong with it
        if not self._untrusted(loaded) or self._is_proposal(loaded) or not await self._own(file):
            return
        if self._stamp(file) != stamp:
            return  # Git may just have taken it away: whose it was cannot be told any more
        around = self.config.around(loaded)
        new = {trust.digest(trust.powers(loaded, around), loaded.path): file}
        for path in trust.code(loaded, around):
            if str(path) not in self.flow.home.trusted.values() or await self._own(path):
                new[trust.content(path)] = path
        await self._trust({**new, **dict.fromkeys(self._taken_away(loaded), file)}, "own")
        self._keep_for_daemon(loaded)

    def is_proposed(self, project: ProjectConfig) -> bool:
        """Whether the commands of a project's file were detected, and nobody has confirmed them yet."""
        loaded = self.config.loaded(project.file) if project.file else None
        return loaded is not None and self._is_proposal(loaded) and not self.trusts(loaded)

    def proposed_commands(self, project: ProjectConfig) -> list[str]:
        """What agents could run without asking once a proposal is confirmed."""
        loaded = self.config.loaded(project.file) if project.file else None
        section = (loaded.bare or loaded).config.projects.get(project.id) if loaded else None
        return list(section.commands) if section and self.is_proposed(project) else []

    def _is_proposal(self, loaded: Loaded) -> bool:
        """Whether a file's commands are as they were proposed: whoever changes them makes the file his own."""
        digest = proposal_digest(self._looked_at(loaded).powers, loaded.path)
        return bool(digest) and digest in self.flow.home.proposed

    async def _trust(self, digests: Mapping[str, Path], by: str = "person") -> None:
        events = [
            self._event(e.CommandsTrusted(digest, str(file), by), key=f"trust:{digest}")
            for digest, file in digests.items()
            if digest and digest not in self.flow.home.trusted
        ]
        if events:
            await self.flow.append(*events)
        self.config.trust_changed()

    def _keep_for_daemon(self, loaded: Loaded) -> None:
        """What a file may decide for the daemon is asked before there is a log to look it up in."""
        digest = trust.digest(trust.started_with(loaded))
        if digest and digest not in trusted_for_daemon(self.home):
            with self.home.trusted.open("a", encoding="utf-8") as file:
                file.write(f"{digest}\n")

    async def _own(self, file: Path) -> bool:
        """What lies in the home is the user's, also where he keeps that in a repository of his; not what was cloned into it."""
        within = self.home.path.resolve() if file.is_relative_to(self.home.path) else None
        return not await tracked(self.host, file, within)

    def trusted_authors(self, project: str) -> tuple[str, ...]:
        """Whose words reach a project's agents although their author may not write to its repository."""
        found = self.config.project(project)
        return found.trusted_authors if found else ()

    def quiet_hours(self, project: str) -> Quiet | None:
        """When only what is urgent is told of a project."""
        found = self.config.project(project)
        return found.quiet if found else None

    def distrust(
        self,
        project: ProjectConfig,
        profile: str | None,
        *,
        ci: bool = False,
        reactions: bool = False,
        coordinator: bool = False,
    ) -> str:
        """Which powers that nobody trusted this session would use; nothing: none."""
        loaded = self.config.loaded(project.file) if project.file else None
        if loaded is None or not (digests := self._untrusted(loaded)):
            return ""
        around = self.config.around(loaded)
        found = trust.powers(loaded, around, waits=True)
        mine = {
            **found.get("projects", {}).get(project.id, {}),
            **found.get("project", {}),
            **found.get("defaults", {}),
        }
        used = {key for key in mine if ci or key not in ("ci", "fix")}
        used |= {key for key in ("plugins", "variables") if key in found}
        used |= {f"agents.{profile}"} if profile in found.get("agents", {}) else set()
        used |= {"reactions"} if reactions and "reactions" in found else set()
        used |= {"coordinator"} if coordinator and "coordinator" in found.get("orchestrator", {}) else set()
        used |= {path.name for path in trust.code(loaded, around) if trust.content(path) in digests}
        used |= {f"no longer {wall}" for wall in self._taken_away(loaded).values()}
        return ", ".join(sorted(used))

    async def check_trust(
        self,
        project: ProjectConfig,
        profile: str | None,
        *,
        ci: bool = False,
        reactions: bool = False,
        coordinator: bool = False,
    ) -> None:
        """Refuse to use what came with the repository and nobody trusted; checks only what this session would use.

        And to use nothing of a file that is there and cannot be read: it may demand walls.
        """
        self.config.refuse_unread(project)
        asked = partial(self.distrust, project, profile, ci=ci, reactions=reactions, coordinator=coordinator)
        if asked() and project.file:
            await self._note_own(project.file)  # the user may have edited code of his own since the file was read
        if (used := asked()) and self.is_proposed(project):
            raise Denied(
                f"the commands that were detected for {project.id} are not confirmed yet ({used})",
                f"trust and prove them: ao init --check {project.path}, or trust them alone: ao trust",
            )
        if used:
            raise Denied(
                f"{project.file} came with the repository and would run commands of its own, or open something of yours ({used})",
                "read it, then trust it: ao trust",
            )

    async def trust(self, path: str | None, context: Context, *, preview: bool, shown: str = "") -> dict[str, Any]:
        """Show what a configuration would run and open, and let it: what was `shown`, by its digest, and nothing else."""
        folder = context.cwd if path is None else _folder(path, context)
        name = await self.resolve(Context(folder, context.config), adopt=True)
        project = self.config.project(name or "")
        loaded = self.config.loaded(project.file) if project and project.file else None
        if project is None or project.file is None or loaded is None:
            raise NotFound(
                "there is no configuration here to trust",
                "it is needed only where agent-orchestrator.yaml has commands",
            )
        around = self.config.around(loaded)
        powers, code = self._looked_at(loaded).powers, trust.code(loaded, around)
        taken = self._taken_away(loaded)
        digests = {trust.digest(powers, loaded.path): project.file, **{trust.content(one): one for one in code}}
        digests |= dict.fromkeys(taken, project.file)
        whole = trust.digest({"all": sorted(digests)}) if powers or code or taken else ""
        trusted = not self._untrusted(loaded)
        if not preview:
            if shown and shown != whole:
                raise Conflict(
                    f"{project.file}, or code that it names, changed since it was shown", "read it again: ao trust"
                )
            walls = [wall for wall, held in trust.walls(loaded).items() if held]
            put_up = {trust.wall_digests(wall, loaded.path)[0]: project.file for wall in walls}
            await self._trust({**digests, **put_up})
            self._keep_for_daemon(loaded)
            trusted = True
            await self._take_again(project.file)
        return {
            "project": project.id,
            "file": str(project.file),
            "commands": [*told(powers, code), *told({"takes away": list(taken.values())} if taken else {}, ())],
            "digest": whole,
            "trusted": trusted,
        }

    async def _take_again(self, file: Path) -> None:
        """What was left out of a file for want of trust comes in."""
        await self._try(file, partial(self.config.reload, file))
        await self._record(project for project in self.config.projects() if project.file == file)
        self._tell()

    # -- what people ask for -------------------------------------------------------------------------------------------

    async def list(self) -> list[dict[str, Any]]:
        """All projects."""
        return [self._json(project) for project in self.config.projects()]

    def _json(self, project: ProjectConfig) -> dict[str, Any]:
        loaded = self.config.loaded(project.file) if project.file else None
        powers = self._looked_at(loaded).powers if loaded else {}
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

    async def add(self, path: str | None, url: str | None, context: Context, *, init: bool) -> dict[str, Any]:
        """Register a repository; a URL is cloned first; `init` writes a configuration if there is none."""
        folder = await self._clone(url, context) if url else _folder(path or ".", context)
        root = repository_of(folder) if folder.is_dir() else None
        if root is None:
            problem = "is not a Git repository" if folder.is_dir() else "is not there"
            raise UsageError(f"{folder} {problem}", "name a repository, or make one by git init")
        created = await self._init(root) if init else None
        await self._readmit(root)
        name = await self.resolve(Context(folder, context.config), adopt=True)
        project = self.config.project(name or "")
        assert project is not None
        if project.file:
            self._warned.pop(project.file, None)
        return {**self._json(project), "created": str(created) if created else None, "agent": project.agent}

    async def _init(self, root: Path) -> Path | None:
        layout = find_layout(root)
        existing = [name for name in (CONFIG_NAME, "agent-orchestrator.yml") if (root / name).exists()]
        if existing or layout is None or layout.top is None:
            return None
        file = root / CONFIG_NAME
        if file.is_symlink():  # the repository's word on where in the user's home a file is made
            raise Conflict(f"{file} is a symlink to what is not there", "remove it, or make what it leads to")
        keep_schema(self.home.schema)
        text = initial(slug(root.name), detect(root), self.default_agent(), schema=self.home.schema)
        loaded = load_text(text, file, self.config.environ)
        if digest := proposal_digest(trust.powers(loaded, self.config.around(loaded)), file):
            await self.flow.append(self._event(e.CommandsProposed(digest, str(file)), key=f"proposed:{digest}"))
        write_atomically(file, text, root)
        return file

    def default_agent(self) -> str:
        """The agent that a new configuration names: the first of the usual ones whose program is here, else the scripted one."""
        known = Registry().names("agent")
        usual = [name for name, program in PROGRAMS.items() if name in known and self.host.which(program)]
        return usual[0] if usual else "demo"

    async def _readmit(self, root: Path) -> None:
        """A project that a person took out comes back when he adds it again."""
        for project in self.flow.home.projects.values():
            if project.removed and Path(project.path) == root:
                registered = e.ProjectRegistered(project.path, project.config, announced=True)
                await self.flow.append(self._event(registered, project.id))
                if project.config:
                    self.config.remove(Path(project.config))

    async def _clone(self, url: str, context: Context) -> Path:
        name = url.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
        if not name or name.startswith((".", "-")) or "\0" in url:
            raise UsageError(f"{one_line(url)} names no repository", "give its full URL")
        target = _possible((context.cwd or self.home.repositories) / name)
        if repository_of(target) == target:
            return target
        if target.exists():
            raise Conflict(
                f"{target} is in the way of the clone", "go to another folder, or register that one: ao start PATH"
            )
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            await Git(self.host, target.parent).run("clone", "--", url, str(target), timeout=600.0)
        except GitFailed as error:
            if error.retryable:
                raise Temporary(error.text, error.remedy) from None
            raise NotFound(error.text, "see whether the address is right, and whether you may read it") from None
        return target

    async def remove(self, name: str) -> dict[str, Any]:
        """Take a project out; its sessions must have ended, and nothing of the repository is touched."""
        self._named(name)
        live = [facts.id for facts in self.flow.sessions.values() if facts.project == name and not facts.stopped]
        if live:
            raise Conflict(
                f"{name} has sessions that are not stopped: {', '.join(live)}", f"stop them: ao stop -p {name} --all"
            )
        await self.flow.append(self._event(e.ProjectRemoved(), name))
        self.config.remove_project(name)
        self._tell()
        return {"removed": name}

    def _event(self, body: e.Body, project: str | None = None, key: str | None = None) -> Event:
        return Event(body, self.flow.clock(), "person", key or uuid.uuid4().hex, project)


def _folder(path: str, context: Context) -> Path:
    """The folder that somebody named."""
    try:
        return _possible((context.cwd or Path("/")) / Path(path).expanduser())
    except RuntimeError:
        raise UsageError(f"{one_line(path)} names nobody's folder", "write the whole path") from None


def _possible(path: Path) -> Path:
    """The path, whether anything is there or not; refused if nothing can be."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise machine_short(error) or UsageError(f"{one_line(str(path))}: {why}", "name another folder") from None
    return path


async def tracked(host: Host, file: Path, within: Path | None = None) -> bool:
    """Is a file part of a repository, of any around it, or of any below `within`? Then it may have come with that one."""
    real = file.parent.resolve() / file.name
    roots = [folder for folder in real.parents if (folder / ".git").exists() and within in (None, *folder.parents)]
    for root in roots:
        if not await _settled(root):
            return True
        name, git = str(real.relative_to(root)), Git(host, root)
        env = {"GIT_LITERAL_PATHSPECS": "1"}
        found = await git.run("ls-files", "--error-unmatch", "--", name, env=env, ok=(0, 1))
        if found.code == 0 or await _brought(git, real, name):
            return True
    return False


async def _brought(git: Git, file: Path, name: str) -> bool:
    """Has a repository just this content, though not under that name now? So it is after a pull that was interrupted or taken back."""
    attributes = await git.run("check-attr", "-z", "filter", "ident", "working-tree-encoding", "--", name)
    if set(attributes.out.split(b"\0")[2::3]) - {b"unspecified", b"unset"}:
        return True  # what Git writes of it is not what it has
    try:
        data = await asyncio.to_thread(read_plain, file.resolve())
    except OSError:
        return False
    forms = [b"blob %d\0%b" % (len(form), form) for form in (data, data.replace(b"\r\n", b"\n"))]
    objects = [new(form, usedforsecurity=False).hexdigest() for form in forms for new in (hashlib.sha1, hashlib.sha256)]
    known = await git.run(
        *("cat-file", "--batch-check=%(objecttype)"),
        input="".join(f"{one}\n" for one in objects).encode(),
        config=("protocol.allow=never",),  # nobody is asked for it
        ok=(0, 128),
    )
    return b"blob" in known.out.split()


async def _settled(root: Path) -> bool:
    """Does a checkout's index tell all its files? A pull or a clone writes them first, and holds the index's lock meanwhile."""
    layout, pause = find_layout(root), 0.02
    while layout is not None and os.path.lexists(layout.git_dir / "index.lock"):
        if pause > 1:
            return False
        await asyncio.sleep(pause)
        pause *= 2
    return True


def trusted_for_daemon(home: Home) -> frozenset[str]:
    """Digests of what files may decide for the daemon as a whole."""
    try:
        return frozenset(home.trusted.read_text(encoding="utf-8").split())
    except OSError:
        return frozenset()


async def foreign(host: Host, home: Home, file: Path) -> bool:
    """Did a file come with a repository, and does nobody trust what it would decide for the daemon?"""
    try:
        digest = trust.digest(trust.started_with(load(file, os.environ)))
    except Exception:
        return True  # whoever takes it up says what is wrong with it
    return bool(digest) and digest not in trusted_for_daemon(home) and await tracked(host, file)


def told(powers: Mapping[str, Any], code: Iterable[Path]) -> list[str]:
    """Powers and files of code as lines that a person can read, and that hide nothing."""
    lines = [*_lines(powers), *(f"{one}: {_declared(one)}" for one in code)]
    return [visible(line).replace("\n", " ⏎ ") for line in lines]


def _declared(path: Path) -> str:
    """What a file of code says that it needs."""
    return f"code; it declares {', '.join(found)}" if (found := declared_in(path)) is not None else "code"


def _expansion() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name != "AO_CONFIG"}


def _lines(commands: Any, where: str = "") -> list[str]:
    """Commands as lines that a person can read."""
    if isinstance(commands, Mapping):
        return [
            line for key, value in commands.items() for line in _lines(value, f"{where}.{key}" if where else str(key))
        ]
    if isinstance(commands, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in commands):
        return [line for item in commands for line in _lines(item, where)]
    return [f"{where}: {' · '.join(map(str, commands)) if isinstance(commands, list | tuple) else commands}"]
