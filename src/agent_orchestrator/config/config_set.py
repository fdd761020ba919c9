"""All configuration files in force, each for its own projects.

Settings are merged in this order, the later one wins: the user's own file (`$AO_HOME/config.yaml`, for all projects), a project's
file, the project's own entry. Settings of the daemon as a whole count only in the user's own file and in the one the daemon was
started with.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import structlog

from agent_orchestrator.base import keyring
from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent, resolve_agent, resolve_project
from agent_orchestrator.config.learned_secrets import learn_configuration
from agent_orchestrator.config.load import LoadedConfig, expand_user, load_text, read_config_text
from agent_orchestrator.config.model import DAEMON_KEYS, ClusterSection, Config, PowerSection, Profile, Project, Tls
from agent_orchestrator.config.overlay import merge_rules, overlay
from agent_orchestrator.config.trust import TrustContext, without_powers
from agent_orchestrator.config.units import Amount, quote_value
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.errors import AoError, ConfigError, Conflict, resource_shortage

log = structlog.get_logger()

DEFAULT_PORT = 3000
_NO_CONFIG = Config()


MAX_CACHED_AGENTS = 256
"""How many agents' settings are cached: any name can be requested."""


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """The settings of the daemon as a whole."""

    port: int
    is_port_set: bool
    """A port that the user set is not exchanged for a free one."""
    host: str
    tls: Tls
    database: str
    cluster: ClusterSection | None
    power: PowerSection


@dataclass(frozen=True, slots=True)
class ParallelLimit:
    """How many agents of some projects may work at the same time."""

    projects: frozenset[str]
    count: int
    where: str
    """The file or project that sets the limit."""
    profile: str | None = None
    """Count only agents of this profile."""
    machine: bool = False
    """The limit applies on each machine."""


@dataclass(frozen=True, slots=True)
class DayBudget:
    """What some projects may use together in a day."""

    projects: frozenset[str]
    amount: Amount


@dataclass(frozen=True, slots=True)
class _ProjectEntry:
    project: Project
    root: Path
    file: Path | None


class TrustPolicy(Protocol):
    """Decides which files may use their powers."""

    def trusts(self, loaded: LoadedConfig, around: TrustContext) -> bool:
        """Return whether a file may use its powers, which are compared with what is `around` it."""
        ...


class ConfigSet:
    """All configuration in force."""

    def __init__(
        self,
        home_config: Path,
        environ: Mapping[str, str],
        started_with: Path | None = None,
        *,
        trust: TrustPolicy,
        foreign: bool = False,
    ) -> None:
        """Create it without any file.

        `foreign`: the file `started_with` came with a repository, so it cannot set what concerns the whole daemon.
        """
        self._home = home_config
        self.environ = environ
        self._started_with = started_with
        self._loaded: dict[Path, LoadedConfig] = {}
        self._entries: dict[str, _ProjectEntry] = {}
        self._excluded: dict[Path, frozenset[str]] = {}
        self._project_cache: dict[str, ProjectConfig] = {}
        self._rules: dict[tuple[str, str | None], tuple[Rule, ...]] = {}
        self._agents: dict[tuple[str, str | None], ResolvedAgent | None] = {}
        self._limits: tuple[ParallelLimit, ...] | None = None
        self._configs_in_force: dict[Path, Config] = {}
        self._trust = trust
        self._is_foreign = foreign
        self.file_errors: dict[Path, str] = {}
        """Files that have errors now, with the error; their last good content is in force."""
        self._unreadable_files: set[Path] = set()

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def own_files(self) -> tuple[Path, Path | None]:
        """The user's own file, whether or not it exists, and the one that the daemon was started with."""
        return self._home, self._started_with

    @property
    def files(self) -> tuple[Path, ...]:
        """The files in force, to be watched."""
        return tuple(self._loaded)

    def loaded(self, path: Path) -> LoadedConfig | None:
        """Return a file's last good content, or None if it is not in force."""
        return self._loaded.get(_absolute(path))

    def load_home(self) -> LoadedConfig:
        """Read the user's own file, if it exists."""
        if not self._home.exists():
            self._loaded.pop(_absolute(self._home), None)
            self._invalidate()
            return LoadedConfig(self._home, Config())
        return self._load_file(self._home)

    def add(self, path: Path, without: Collection[str] = ()) -> LoadedConfig:
        """Read a file and register its projects except those in `without`. A file that is already in force is read again."""
        return self._load_file(path, frozenset(without))

    def reload(self, path: Path) -> list[str]:
        """Read a changed file again and return which keys changed. Raises `ConfigError` and leaves the last good content in force."""
        before = self._loaded.get(_absolute(path))
        after = self.load_home() if _absolute(path) == _absolute(self._home) else self._load_file(path)
        old, new = (_flatten(loaded.config) if loaded else {} for loaded in (before, after))
        return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))

    def remove(self, path: Path) -> None:
        """Remove a file and its projects."""
        key = _absolute(path)
        self._loaded.pop(key, None)
        self._excluded.pop(key, None)
        self.file_errors.pop(key, None)
        self._entries = {name: entry for name, entry in self._entries.items() if entry.file != key}
        self._invalidate()

    def remove_project(self, project_id: str) -> None:
        """Remove one project. Its file stays in force for the others."""
        entry = self._entries.pop(project_id, None)
        if entry and entry.file:
            self._excluded[entry.file] = self._excluded.get(entry.file, frozenset()) | {project_id}
        self._invalidate()

    def add_adhoc(self, project_id: str, path: Path, file: Path | None = None) -> ProjectConfig:
        """Add a repository without its own configuration; the settings of `file`, if given, apply to it."""
        self._refuse_duplicate(project_id, None, path)
        self._entries[project_id] = _ProjectEntry(Project(), path, _absolute(file) if file else None)
        self._invalidate()
        config = self.project(project_id)
        assert config is not None
        return config

    # -- what is in force ----------------------------------------------------------------------------------------------

    @property
    def daemon(self) -> DaemonConfig:
        """The settings of the daemon as a whole."""
        merged = Config()
        for path in (self._home, self._started_with):
            loaded = self._loaded.get(_absolute(path)) if path else None
            if loaded:
                settings = {
                    key: getattr(loaded.config, key) for key in self._allowed_daemon_keys(loaded) if loaded.has_key(key)
                }
                if "tls" in settings and path != self._home:
                    settings["tls"] = _without_insecure(settings["tls"])
                merged = overlay(merged, Config.model_construct(set(settings), **settings))
        port_given = merged.port is not None
        port = DEFAULT_PORT if merged.port is None else merged.port
        return DaemonConfig(port, port_given, merged.host, merged.tls, merged.database, merged.cluster, merged.power)

    def project(self, project_id: str) -> ProjectConfig | None:
        """Return a project with all settings resolved, or None."""
        entry = self._entries.get(project_id)
        if entry is None:
            return None
        if project_id not in self._project_cache:
            self._project_cache[project_id] = resolve_project(
                project_id,
                self._settings(project_id, entry),
                entry.root,
                entry.file,
                self._configs(entry.file),
                self.environ,
            )
        return self._project_cache[project_id]

    def fallback_project(self) -> ProjectConfig:
        """Return the settings for what belongs to no project: those of the user's own file."""
        config = self._project_cache.get("")
        if config is None:
            file = self._home if _absolute(self._home) in self._loaded else None
            configs = self._configs(None)
            config = resolve_project("", Project(), self._home.parent, file, configs, self.environ)
            self._project_cache[""] = config
        return config

    def project_or_unowned(self, project_id: str | None) -> ProjectConfig:
        """Return a project's settings, or those for what belongs to no project."""
        return (self.project(project_id) if project_id else None) or self.fallback_project()

    def routes(self, project_id: str | None, level: str) -> Sequence[str]:
        """Return the names of the notifiers that a project's notifications of this level go to."""
        return self.project_or_unowned(project_id).routing.get(level, ())

    def mark_unreadable(self, path: Path) -> None:
        """Remember an existing file that had errors when the daemon started, so that its demands (checks, walls) are not known."""
        if path.exists() and _absolute(path) not in self._loaded:
            self._unreadable_files.add(_absolute(path))

    def require_readable(self, project: ProjectConfig) -> None:
        """Raise `Conflict` if the user's own file or the project's could not be read since the daemon started."""
        for file in (self._home, project.file):
            if file is not None and _absolute(file) in self._unreadable_files and file.exists():
                problem = self.file_errors.get(_absolute(file)) or f"{file} could not be read"
                raise Conflict(f"nothing starts or lands in {project.id}, which has no good configuration: {problem}")

    def projects(self) -> tuple[ProjectConfig, ...]:
        """Return all projects, by id."""
        return tuple(project for name in sorted(self._entries) if (project := self.project(name)))

    def project_at(self, folder: Path) -> ProjectConfig | None:
        """Return the project in whose repository a folder lies; the innermost one if repositories are nested."""
        real = folder.resolve()
        candidates = [project for project in self.projects() if real.is_relative_to(project.path.resolve())]
        return max(
            candidates, key=lambda project: (len(project.path.resolve().parts), project.file is not None), default=None
        )

    def rules(self, project_id: str, profile: str | None = None) -> tuple[Rule, ...]:
        """Return the reaction rules in force: defaults, then global, then project, then profile, merged field by field."""
        cache = self._rules  # this very dict: a change replaces it, so that outdated rules are not cached
        if (project_id, profile) not in cache:
            project = self.project(project_id)
            levels = list(project.reactions) if project else [config.reactions for config in self._configs(None)]
            if project and profile and profile in project.profiles:
                levels.append(project.profiles[profile].reactions)
            cache[project_id, profile] = merge_rules(*levels)
        return cache[project_id, profile]

    def profile(self, project_id: str, name: str) -> Profile | None:
        """Return the profile with that name, or None."""
        project = self.project(project_id)
        return project.profiles.get(name) if project else None

    def agent(self, project_id: str, name: str | None = None) -> ResolvedAgent | None:
        """Return how the profile, or else the agent, of that name is run for a project. Without a name: the project's own agent."""
        cache = self._agents
        if (project_id, name) not in cache:
            if len(cache) >= MAX_CACHED_AGENTS:
                cache.clear()
            project = self.project(project_id)
            cache[project_id, name] = resolve_agent(project, name) if project else None
        return cache[project_id, name]

    def parallel_limits(self) -> tuple[ParallelLimit, ...]:
        """Return all limits on agents that work at the same time. Each of them must hold."""
        if self._limits is None:
            self._limits = tuple(self._compute_limits())
        return self._limits

    def day_budgets(self) -> tuple[DayBudget, ...]:
        """Return what the projects of each file may use together in a day. Each budget must hold."""
        budgets = []
        for path, loaded in self._loaded.items():
            budget = loaded.config.orchestrator.budget.per_day
            project_ids = [name for name, entry in self._entries.items() if path in (_absolute(self._home), entry.file)]
            if budget is not None and project_ids:
                budgets.append(DayBudget(frozenset(project_ids), budget))
        return tuple(budgets)

    def workspaces(self) -> tuple[Path, ...]:
        """Return the folders outside `$AO_HOME` that hold sessions' workspaces. No configuration is read there."""
        folders = [project.worktree_dir or project.path / ".worktrees" for project in self.projects()]
        return tuple(dict.fromkeys(folders))

    def with_scope_warning(self, loaded: LoadedConfig) -> LoadedConfig:
        """Return the file with a warning if it sets daemon-wide keys but is not the file for that."""
        allowed = {_absolute(path) for path in (self._home, self._started_with) if path}
        daemon_keys = [key for key in DAEMON_KEYS if loaded.has_key(key)]
        if _absolute(loaded.path) in allowed or not daemon_keys:
            return loaded
        verb = "counts" if len(daemon_keys) == 1 else "count"
        text = f"{loaded.path}: {', '.join(daemon_keys)} {verb} only in {self._home} or in the file the daemon was started with"
        return replace(loaded, warnings=(*loaded.warnings, text))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _compute_limits(self) -> list[ParallelLimit]:
        """Return the limits of all files, of the cluster and of single projects."""
        limits = []
        for path, loaded in self._loaded.items():
            count = loaded.config.orchestrator.max_parallel_agents
            names = (
                self._entries
                if path == _absolute(self._home)
                else [project_id for project_id, entry in self._entries.items() if entry.file == path]
            )
            if count is not None and names:
                limits.append(ParallelLimit(frozenset(names), count, str(path)))
            limits += [
                ParallelLimit(frozenset(names), profile.max_parallel_agents, str(path), name)
                for name, profile in loaded.config.agents.items()
                if profile.max_parallel_agents and names
            ]
        cluster = self.daemon.cluster
        if cluster and cluster.max_parallel_agents and self._entries:
            limits.append(
                ParallelLimit(frozenset(self._entries), cluster.max_parallel_agents, str(self._home), machine=True)
            )
        limits += [
            ParallelLimit(frozenset({project.id}), project.max_parallel_agents, project.id)
            for project in self.projects()
            if project.max_parallel_agents
        ]
        return limits

    def _load_file(self, path: Path, without: frozenset[str] | None = None) -> LoadedConfig:
        """Read a file and put it in force, without the projects in `without`."""
        key = _absolute(path)
        without = self._excluded.get(key, frozenset()) if without is None else without
        with self.recording_errors(path):
            loaded = self.with_scope_warning(self._read(path))
            entries = {
                name: project_entry
                for name, project_entry in self._project_entries(loaded).items()
                if name not in without
            }
            for name, entry in entries.items():
                self._refuse_duplicate(name, key, entry.root)
            self._activate(key, loaded, entries)
        self._excluded[key] = without
        self.file_errors.pop(key, None)
        self._unreadable_files.discard(key)
        return loaded

    def _read(self, path: Path) -> LoadedConfig:
        """Read a file. The keyring is asked for its secrets only if it is the user's own file or trusted as it is."""
        text = read_config_text(path)
        if _absolute(path) == _absolute(self._home):
            return load_text(text, path, self.environ, keyring.read)
        bare = load_text(text, path, self.environ)
        if not bare.has_unread_secrets or not self._trusts(bare):
            return bare
        return replace(load_text(text, path, self.environ, keyring.read), without_secrets=bare)

    def _activate(self, key: Path, loaded: LoadedConfig, entries: Mapping[str, _ProjectEntry]) -> None:
        """Put a file's content in force if each of its projects can be resolved; otherwise keep the previous content."""
        before = self._entries, self._loaded
        own_ids = self._project_ids_of(key)
        other_entries = {
            name: entry for name, entry in self._entries.items() if entry.file != key or name not in own_ids
        }
        self._entries, self._loaded = {**other_entries, **entries}, {**self._loaded, key: loaded}
        try:
            self._invalidate()
            is_home_file = key == _absolute(self._home)  # the user's own file applies to every project
            for name in self._entries if is_home_file else entries:
                self.project(name)
                self.rules(name)
        except BaseException:
            self._entries, self._loaded = before
            self._invalidate()
            raise

    @contextmanager
    def recording_errors(self, path: Path) -> Iterator[None]:
        """Record any error inside the `with` block as an error of this file, and of no other, and raise it as `AoError`."""
        key = _absolute(path)
        try:
            yield
        except ConfigError as error:
            self.file_errors[key] = str(error)
            raise
        except AoError:
            raise
        except Exception as error:
            if resource_error := resource_shortage(error):
                raise resource_error from error
            kind = " ".join(f"{type(error).__name__}: {error}".split())
            problem = ConfigError(
                f"{path} cannot be used ({quote_value(kind)})",
                "daemon.log says more; take back what was changed in it last",
            )
            if self.file_errors.get(key) != str(problem):
                log.exception("a configuration cannot be used, which nobody foresaw", file=str(path))
            self.file_errors[key] = str(problem)
            raise problem from error

    def _project_ids_of(self, key: Path) -> set[str]:
        """Return the projects that the file itself named when it was last read, not those added later by path."""
        loaded = self._loaded.get(key)
        return set(self._project_entries(loaded)) if loaded else set()

    def trust_context(self, loaded: LoadedConfig) -> TrustContext:
        """Return what a file's powers are compared with."""
        home = self._loaded.get(_absolute(self._home))
        own_config = home.config if home and home.path != loaded.path else _NO_CONFIG
        return TrustContext(loaded.path.absolute().parent, own_config, self.environ)

    def _config_in_force(self, key: Path) -> Config:
        """Return the part of a file that is in force: without its powers if it is not trusted."""
        if key not in self._configs_in_force:
            loaded = self._loaded[key]
            trusted = self._trusts(loaded) and not loaded.has_unread_secrets
            self._configs_in_force[key] = (
                loaded.config if trusted else without_powers(loaded, self.trust_context(loaded))
            )
        return self._configs_in_force[key]

    def _settings(self, project_id: str, entry: _ProjectEntry) -> Project:
        """Return a project's own settings from its file, as far as they are in force."""
        if entry.file is None or entry.file not in self._loaded:
            return entry.project
        config = self._config_in_force(entry.file)
        return config.projects.get(project_id) or config.project or entry.project

    def _project_entries(self, loaded: LoadedConfig) -> dict[str, _ProjectEntry]:
        """Return the projects of a file. Paths outside its folder count only if it is trusted."""
        key, folder = _absolute(loaded.path), loaded.path.absolute().parent
        if loaded.config.projects:
            trusted, folder_path = self._trusts(loaded), folder.resolve()
            roots = {
                name: folder / expand_user(project.path or ".", self.environ)
                for name, project in loaded.config.projects.items()
            }
            return {
                name: _ProjectEntry(loaded.config.projects[name], root, key)
                for name, root in roots.items()
                if trusted or root.resolve().is_relative_to(folder_path)
            }
        own_section = loaded.config.project
        if key == _absolute(self._home):
            if own_section:
                keys = ", ".join(sorted(own_section.model_dump(by_alias=True, exclude_unset=True)))
                raise ConfigError(f"{loaded.path}: {keys} belongs to a project", "write it under projects or defaults")
            return {}
        root = repository_of(folder) or (folder if own_section else None)
        if root is None:
            return {}
        if own_section and own_section.path:
            given_root = folder / expand_user(own_section.path, self.environ)
            root = given_root if self._trusts(loaded) or given_root.resolve().is_relative_to(folder.resolve()) else root
        return {slug(root.resolve().name): _ProjectEntry(own_section or Project(), root, key)}

    def _refuse_duplicate(self, name: str, file: Path | None, root: Path) -> None:
        """Raise `ConfigError` if another file or repository already has a project with this id."""
        other = self._entries.get(name)
        if other is None or (other.file == file and (file is not None or other.root == root)):
            return
        if other.file is None and other.root.resolve() == root.resolve():
            return  # a repository that was added without a file has one now
        description = f"{file} ({root})" if file else str(root)
        other_description = f"{other.file} ({other.root})" if other.file else str(other.root)
        raise ConfigError(
            f'the project "{name}" of {description} is also that of {other_description}',
            "give one of them another id, or remove one",
        )

    def _allowed_daemon_keys(self, loaded: LoadedConfig) -> tuple[str, ...]:
        """Return which daemon-wide keys a file may set."""
        foreign = (
            self._is_foreign
            and self._started_with is not None
            and _absolute(loaded.path) == _absolute(self._started_with)
        )
        return ("port", "power") if foreign else DAEMON_KEYS

    def _configs(self, file: Path | None) -> tuple[Config, ...]:
        """Return the configurations that apply to projects of `file`: the user's own, then the file's; an empty one if there is none."""
        paths = dict.fromkeys([_absolute(self._home), *([file] if file else [])])
        return tuple(self._config_in_force(path) for path in paths if path in self._loaded) or (Config(),)

    def apply_trust_change(self) -> None:
        """Recompute what may be used, and read files that became trusted again with secrets of the keyring."""
        self._invalidate()
        for path, loaded in list(self._loaded.items()):
            if loaded.has_unread_secrets and self._trusts(loaded):
                with suppress(AoError):  # the error is recorded for that file, and its powers stay out of force
                    self._load_file(path)

    def _trusts(self, loaded: LoadedConfig) -> bool:
        """Return whether a file may use its powers."""
        return self._trust.trusts(loaded, self.trust_context(loaded))

    def _invalidate(self) -> None:
        """Discard everything computed from the content in force, and learn its secrets, so that they are redacted."""
        self._project_cache.clear()
        self._rules = {}
        self._agents = {}
        self._configs_in_force.clear()
        self._limits = None
        learn_configuration(self.data(), self.environ)

    def data(self) -> list[dict[str, Any]]:
        """Return the content of each file in force, as JSON data."""
        return [
            loaded.config.model_dump(mode="json", by_alias=True, exclude_unset=True) for loaded in self._loaded.values()
        ]


def slug(name: str) -> str:
    """Convert a name to a project id."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "project"


def repository_of(folder: Path) -> Path | None:
    """Return the root of the Git repository in which a folder lies, or None."""
    return next(
        (
            candidate
            for candidate in (folder, *folder.parents)
            if (candidate / ".git").exists() or _is_bare_repository(candidate)
        ),
        None,
    )


def _is_bare_repository(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _absolute(path: Path) -> Path:
    return path.absolute()


def _flatten(config: Config) -> dict[str, Any]:
    """Return the values of a configuration by dotted key."""
    values: dict[str, Any] = {}

    def collect(value: Any, path: str) -> None:
        if isinstance(value, dict) and value:
            for key, child in value.items():
                collect(child, f"{path}.{key}" if path else str(key))
        else:
            values[path] = value

    collect(config.model_dump(by_alias=True, exclude_unset=True), "")
    return values


def _without_insecure(tls: Tls) -> Tls:
    """Return the settings without `insecure`: only the user's own file, which cannot come with a repository, may open the daemon."""
    return Tls(**tls.model_dump(exclude_unset=True, exclude={"insecure"}))
