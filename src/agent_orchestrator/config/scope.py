"""Several files in force at once, each for its own projects.

The user's own file (`$AO_HOME/config.yaml`) speaks for all projects, a project's file over it, the project's own entry over
both. What concerns the daemon as a whole counts in the user's own file and in the one the daemon was started with.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base import keyring
from agent_orchestrator.config.effective import AgentSettings, ProjectConfig, agent_settings, project_config
from agent_orchestrator.config.load import Loaded, expand_user, load_text, read
from agent_orchestrator.config.merge import overlay, rules
from agent_orchestrator.config.model import DAEMON_KEYS, Cluster, Config, Power, Profile, Project, Tls
from agent_orchestrator.config.trust import Around, harmless
from agent_orchestrator.config.values import Amount, shown
from agent_orchestrator.core.rules import Rule
from agent_orchestrator.errors import AoError, ConfigError, Conflict, machine_short

log = structlog.get_logger()

DEFAULT_PORT = 3000
_NOTHING = Config()


MOST_AGENTS = 256
"""Whose settings are kept: any name may be asked for."""


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """What concerns the daemon as a whole."""

    port: int
    port_given: bool
    """A port that somebody asked for is not exchanged for a free one."""
    host: str
    tls: Tls
    database: str
    cluster: Cluster | None
    power: Power


@dataclass(frozen=True, slots=True)
class Limit:
    """How many agents of some projects may work at once."""

    projects: frozenset[str]
    count: int
    where: str
    """The file or project that says so."""
    profile: str | None = None
    """Only agents of this profile are counted."""
    machine: bool = False
    """So many on each machine."""


@dataclass(frozen=True, slots=True)
class DayBudget:
    """What some projects may use together in a day."""

    projects: frozenset[str]
    amount: Amount


@dataclass(frozen=True, slots=True)
class _Entry:
    project: Project
    root: Path
    file: Path | None


class ConfigSet:
    """All configuration in force."""

    def __init__(self, home_config: Path, environ: Mapping[str, str], started_with: Path | None = None) -> None:
        self._home = home_config
        self.environ = environ
        self._started_with = started_with
        self._loaded: dict[Path, Loaded] = {}
        self._entries: dict[str, _Entry] = {}
        self._without: dict[Path, frozenset[str]] = {}
        self._cache: dict[str, ProjectConfig] = {}
        self._rules: dict[tuple[str, str | None], tuple[Rule, ...]] = {}
        self._agents: dict[tuple[str, str | None], AgentSettings | None] = {}
        self._limits: tuple[Limit, ...] | None = None
        self._in_force: dict[Path, Config] = {}
        self.trusts: Callable[[Loaded], bool] = lambda _loaded: True
        """May a file use its powers?"""
        self.foreign = False
        """The file that the daemon was started with came with a repository: it has no say in what concerns the whole daemon."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when other content is in force."""
        self.broken: dict[Path, str] = {}
        """Files that are wrong now, with what is wrong; their last good content is in force."""
        self._unread: set[Path] = set()

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def places(self) -> tuple[Path, Path | None]:
        """The user's own file, whether it is there or not, and the one that the daemon was started with."""
        return self._home, self._started_with

    @property
    def files(self) -> tuple[Path, ...]:
        """The files in force; to be watched."""
        return tuple(self._loaded)

    def loaded(self, path: Path) -> Loaded | None:
        """What a file in force said when it was last right."""
        return self._loaded.get(_key(path))

    def load_home(self) -> Loaded:
        """Read the user's own file, if there is one."""
        if not self._home.exists():
            self._loaded.pop(_key(self._home), None)
            self._changed()
            return Loaded(self._home, Config())
        return self._take(self._home)

    def add(self, path: Path, without: Collection[str] = ()) -> Loaded:
        """Read a file and take over its projects but those `without`; a file known before is read again."""
        return self._take(path, frozenset(without))

    def reload(self, path: Path) -> list[str]:
        """Read a changed file again and say which keys changed. Raises `ConfigError` and leaves the last good content in force."""
        before = self._loaded.get(_key(path))
        after = self.load_home() if _key(path) == _key(self._home) else self._take(path)
        old, new = (_flat(loaded.config) if loaded else {} for loaded in (before, after))
        return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))

    def remove(self, path: Path) -> None:
        """Forget a file and its projects."""
        key = _key(path)
        self._loaded.pop(key, None)
        self._without.pop(key, None)
        self.broken.pop(key, None)
        self._entries = {name: entry for name, entry in self._entries.items() if entry.file != key}
        self._changed()

    def remove_project(self, project_id: str) -> None:
        """Forget one project; its file stays in force for the others."""
        entry = self._entries.pop(project_id, None)
        if entry and entry.file:
            self._without[entry.file] = self._without.get(entry.file, frozenset()) | {project_id}
        self._changed()

    def add_adhoc(self, project_id: str, path: Path, file: Path | None = None) -> ProjectConfig:
        """Take in a repository without a configuration of its own; the settings of `file`, if given, hold for it."""
        self._refuse_clash(project_id, None, path)
        self._entries[project_id] = _Entry(Project(), path, _key(file) if file else None)
        self._changed()
        found = self.project(project_id)
        assert found is not None
        return found

    # -- what is in force ----------------------------------------------------------------------------------------------

    @property
    def daemon(self) -> DaemonConfig:
        """What concerns the daemon as a whole."""
        merged = Config()
        for path in (self._home, self._started_with):
            loaded = self._loaded.get(_key(path)) if path else None
            if loaded:
                given = {key: getattr(loaded.config, key) for key in self._for_daemon(loaded) if loaded.given(key)}
                if "tls" in given and path != self._home:
                    given["tls"] = _without_insecure(given["tls"])
                merged = overlay(merged, Config.model_construct(set(given), **given))
        port_given = merged.port is not None
        port = DEFAULT_PORT if merged.port is None else merged.port
        return DaemonConfig(port, port_given, merged.host, merged.tls, merged.database, merged.cluster, merged.power)

    def project(self, project_id: str) -> ProjectConfig | None:
        """A project with everything resolved."""
        entry = self._entries.get(project_id)
        if entry is None:
            return None
        if project_id not in self._cache:
            self._cache[project_id] = project_config(
                project_id,
                self._settings(project_id, entry),
                entry.root,
                entry.file,
                self._configs(entry.file),
                self.environ,
            )
        return self._cache[project_id]

    def unowned(self) -> ProjectConfig:
        """What holds for that which belongs to no project: the user's own file."""
        found = self._cache.get("")
        if found is None:
            file = self._home if _key(self._home) in self._loaded else None
            configs = self._configs(None)
            found = project_config("", Project(), self._home.parent, file, configs, self.environ)
            self._cache[""] = found
        return found

    def note_unread(self, path: Path) -> None:
        """A file that is there was not right when the daemon began: what it demands, checks and walls for one, is not known."""
        if path.exists() and _key(path) not in self._loaded:
            self._unread.add(_key(path))

    def refuse_unread(self, project: ProjectConfig) -> None:
        """Raises `Conflict` where that holds for the user's own file or the project's."""
        for file in (self._home, project.file):
            if file is not None and _key(file) in self._unread and file.exists():
                wrong = self.broken.get(_key(file)) or f"{file} could not be read"
                raise Conflict(f"nothing starts or lands in {project.id}, which has no good configuration: {wrong}")

    def projects(self) -> tuple[ProjectConfig, ...]:
        """All projects, by id."""
        return tuple(found for name in sorted(self._entries) if (found := self.project(name)))

    def project_at(self, folder: Path) -> ProjectConfig | None:
        """The project in whose repository a folder lies; the innermost where they are nested."""
        real = folder.resolve()
        holders = [p for p in self.projects() if real.is_relative_to(p.path.resolve())]
        return max(holders, key=lambda p: (len(p.path.resolve().parts), p.file is not None), default=None)

    def rules(self, project_id: str, profile: str | None = None) -> tuple[Rule, ...]:
        """The reaction rules in force: defaults, then global, then project, then profile, merged field by field."""
        kept = self._rules  # that of this moment: what is worked out from it is not kept beyond a change
        if (project_id, profile) not in kept:
            project = self.project(project_id)
            levels = list(project.reactions) if project else [c.reactions for c in self._configs(None)]
            if project and profile and profile in project.profiles:
                levels.append(project.profiles[profile].reactions)
            kept[project_id, profile] = rules(*levels)
        return kept[project_id, profile]

    def profile(self, project_id: str, name: str) -> Profile | None:
        """The profile of that name, if there is one."""
        project = self.project(project_id)
        return project.profiles.get(name) if project else None

    def agent(self, project_id: str, name: str | None = None) -> AgentSettings | None:
        """How the profile, or else the agent, of that name is run for a project; none named: the project's own."""
        kept = self._agents
        if (project_id, name) not in kept:
            if len(kept) >= MOST_AGENTS:
                kept.clear()
            project = self.project(project_id)
            kept[project_id, name] = agent_settings(project, name) if project else None
        return kept[project_id, name]

    def limits(self) -> tuple[Limit, ...]:
        """All limits on agents that work at once; each must hold."""
        if self._limits is None:
            self._limits = tuple(self._limits_in_force())
        return self._limits

    def day_budgets(self) -> tuple[DayBudget, ...]:
        """What the projects of each file may use together in a day; each must hold."""
        found = []
        for path, loaded in self._loaded.items():
            budget = loaded.config.orchestrator.budget.per_day
            mine = [name for name, one in self._entries.items() if path in (_key(self._home), one.file)]
            if budget is not None and mine:
                found.append(DayBudget(frozenset(mine), budget))
        return tuple(found)

    def workspaces(self) -> tuple[Path, ...]:
        """Folders that hold sessions' workspaces, beside those below `$AO_HOME`: no configuration is read there."""
        folders = [project.worktree_dir or project.path / ".worktrees" for project in self.projects()]
        return tuple(dict.fromkeys(folders))

    def noted(self, loaded: Loaded) -> Loaded:
        """With a warning if it sets what only concerns the whole daemon, and is not the file for that."""
        allowed = {_key(path) for path in (self._home, self._started_with) if path}
        given = [key for key in DAEMON_KEYS if loaded.given(key)]
        if _key(loaded.path) in allowed or not given:
            return loaded
        counts = "counts" if len(given) == 1 else "count"
        text = f"{loaded.path}: {', '.join(given)} {counts} only in {self._home} or in the file the daemon was started with"
        return replace(loaded, warnings=(*loaded.warnings, text))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _limits_in_force(self) -> list[Limit]:
        found = []
        for path, loaded in self._loaded.items():
            count = loaded.config.orchestrator.max_parallel_agents
            names = (
                self._entries if path == _key(self._home) else [n for n, e in self._entries.items() if e.file == path]
            )
            if count is not None and names:
                found.append(Limit(frozenset(names), count, str(path)))
            found += [
                Limit(frozenset(names), profile.max_parallel_agents, str(path), name)
                for name, profile in loaded.config.agents.items()
                if profile.max_parallel_agents and names
            ]
        cluster = self.daemon.cluster
        if cluster and cluster.max_parallel_agents and self._entries:
            found.append(Limit(frozenset(self._entries), cluster.max_parallel_agents, str(self._home), machine=True))
        found += [
            Limit(frozenset({p.id}), p.max_parallel_agents, p.id) for p in self.projects() if p.max_parallel_agents
        ]
        return found

    def _take(self, path: Path, without: frozenset[str] | None = None) -> Loaded:
        key = _key(path)
        without = self._without.get(key, frozenset()) if without is None else without
        with self.answering(path):
            loaded = self.noted(self._read(path))
            entries = {name: e for name, e in self._entries_of(loaded).items() if name not in without}
            for name, entry in entries.items():
                self._refuse_clash(name, key, entry.root)
            self._put(key, loaded, entries)
        self._without[key] = without
        self.broken.pop(key, None)
        self._unread.discard(key)
        return loaded

    def _read(self, path: Path) -> Loaded:
        """What a file says; the keyring is asked only for one that is the user's own, or trusted as it is."""
        text = read(path)
        if _key(path) == _key(self._home):
            return load_text(text, path, self.environ, keyring.read)
        bare = load_text(text, path, self.environ)
        if not bare.unasked or not self.trusts(bare):
            return bare
        return replace(load_text(text, path, self.environ, keyring.read), bare=bare)

    def _put(self, key: Path, loaded: Loaded, entries: Mapping[str, _Entry]) -> None:
        """Put a file's content in force, if each of its projects can be worked out from it; else that of before stays."""
        before = self._entries, self._loaded
        named = self._ids_of(key)
        kept = {name: entry for name, entry in self._entries.items() if entry.file != key or name not in named}
        self._entries, self._loaded = {**kept, **entries}, {**self._loaded, key: loaded}
        try:
            self._changed()
            own = key == _key(self._home)  # which speaks for every project
            for name in self._entries if own else entries:
                self.project(name)
                self.rules(name)
        except BaseException:
            self._entries, self._loaded = before
            self._changed()
            raise

    @contextmanager
    def answering(self, path: Path) -> Iterator[None]:
        """Whatever goes wrong with a file is wrong with that file: it is broken, and nothing else is."""
        key = _key(path)
        try:
            yield
        except ConfigError as error:
            self.broken[key] = str(error)
            raise
        except AoError:
            raise
        except Exception as error:
            if short := machine_short(error):
                raise short from error
            kind = " ".join(f"{type(error).__name__}: {error}".split())
            wrong = ConfigError(
                f"{path} cannot be used ({shown(kind)})", "daemon.log says more; take back what was changed in it last"
            )
            if self.broken.get(key) != str(wrong):
                log.exception("a configuration cannot be used, which nobody foresaw", file=str(path))
            self.broken[key] = str(wrong)
            raise wrong from error

    def _ids_of(self, key: Path) -> set[str]:
        """Projects that a file itself named when it was last read; not those that were added beside it."""
        loaded = self._loaded.get(key)
        return set(self._entries_of(loaded)) if loaded else set()

    def around(self, loaded: Loaded) -> Around:
        """What a file's powers are measured by."""
        home = self._loaded.get(_key(self._home))
        own = home.config if home and home.path != loaded.path else _NOTHING
        return Around(loaded.path.absolute().parent, own, self.environ)

    def _force(self, key: Path) -> Config:
        """What of a file is in force: without its powers, where nobody trusts it."""
        if key not in self._in_force:
            loaded = self._loaded[key]
            trusted = self.trusts(loaded) and not loaded.unasked
            self._in_force[key] = loaded.config if trusted else harmless(loaded, self.around(loaded))
        return self._in_force[key]

    def _settings(self, project_id: str, entry: _Entry) -> Project:
        if entry.file is None or entry.file not in self._loaded:
            return entry.project
        config = self._force(entry.file)
        return config.projects.get(project_id) or config.project or entry.project

    def _entries_of(self, loaded: Loaded) -> dict[str, _Entry]:
        key, folder = _key(loaded.path), loaded.path.absolute().parent
        if loaded.config.projects:
            trusted, here = self.trusts(loaded), folder.resolve()
            roots = {
                name: folder / expand_user(project.path or ".", self.environ)
                for name, project in loaded.config.projects.items()
            }
            return {
                name: _Entry(loaded.config.projects[name], root, key)
                for name, root in roots.items()
                if trusted or root.resolve().is_relative_to(here)
            }
        own = loaded.config.project
        if key == _key(self._home):
            if own:
                found = ", ".join(sorted(own.model_dump(by_alias=True, exclude_unset=True)))
                raise ConfigError(f"{loaded.path}: {found} belongs to a project", "write it under projects or defaults")
            return {}
        root = repository_of(folder) or (folder if own else None)
        if root is None:
            return {}
        if own and own.path:
            named = folder / expand_user(own.path, self.environ)
            root = named if self.trusts(loaded) or named.resolve().is_relative_to(folder.resolve()) else root
        return {slug(root.resolve().name): _Entry(own or Project(), root, key)}

    def _refuse_clash(self, name: str, file: Path | None, root: Path) -> None:
        other = self._entries.get(name)
        if other is None or (other.file == file and (file is not None or other.root == root)):
            return
        if other.file is None and other.root.resolve() == root.resolve():
            return  # a repository that was taken in without a file has one now
        mine = f"{file} ({root})" if file else str(root)
        theirs = f"{other.file} ({other.root})" if other.file else str(other.root)
        raise ConfigError(
            f'the project "{name}" of {mine} is also that of {theirs}', "give one of them another id, or remove one"
        )

    def _for_daemon(self, loaded: Loaded) -> tuple[str, ...]:
        """Which of the keys that concern the whole daemon a file may set."""
        foreign = self.foreign and self._started_with is not None and _key(loaded.path) == _key(self._started_with)
        return ("port", "power") if foreign else DAEMON_KEYS

    def _configs(self, file: Path | None) -> tuple[Config, ...]:
        """The files that speak for a project of `file`, the weakest first; never none."""
        paths = dict.fromkeys([_key(self._home), *([file] if file else [])])
        return tuple(self._force(p) for p in paths if p in self._loaded) or (Config(),)

    def trust_changed(self) -> None:
        """What may be used is to be asked anew, and the keyring for files that are trusted now."""
        self._changed()
        for path, loaded in list(self._loaded.items()):
            if loaded.unasked and self.trusts(loaded):
                with suppress(AoError):  # which is told of that file, and leaves its powers out of force
                    self._take(path)

    def _changed(self) -> None:
        self._cache.clear()
        self._rules = {}
        self._agents = {}
        self._in_force.clear()
        self._limits = None
        self.on_change()

    def data(self) -> list[dict[str, Any]]:
        """What each file in force says, as JSON data."""
        return [one.config.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in self._loaded.values()]


def slug(name: str) -> str:
    """A name as a project's id."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "project"


def repository_of(folder: Path) -> Path | None:
    """The root of the Git repository in which a folder lies."""
    return next((f for f in (folder, *folder.parents) if (f / ".git").exists() or _bare(f)), None)


def _bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _key(path: Path) -> Path:
    return path.absolute()


def _flat(config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key))
        else:
            found[path] = value

    walk(config.model_dump(by_alias=True, exclude_unset=True), "")
    return found


def _without_insecure(tls: Tls) -> Tls:
    """Only the user's own file may open the daemon to everybody: another one may have come with a repository."""
    return Tls(**tls.model_dump(exclude_unset=True, exclude={"insecure"}))
