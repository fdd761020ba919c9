"""Plugins by slot and name: find, import and construct them.

Plugins come from three places: a file or package named in `plugins:`, this package, and installed distributions (entry points of the
group `agent_orchestrator.<slot>`). All of them are imported by `_import_plugin` and constructed by `PluginRegistry.create`; built-in
plugins use the same path. If two have the same name, the first place in that order wins.

A file declares its plugin by `plugin = TheClass`, or has a single class that is complete for one slot. A class that does not inherit
from its slot's base class but has its methods gets the base class's defaults (`_as_factory`). Its name is the
class's `name`, else the file's; an entry in `plugins:` can set `name` and `slot`. A plugin that is written with the classes of
`agent_orchestrator.client.api.plugins` can also be an instance: `plugin = TheClass()`, `plugin = {"agent": TheClass()}`.

Third-party code is imported only where it was named: an installed plugin if the configuration names it, a file if the content that
is run was admitted. A plugin declares what it needs of the machine by its class's `permissions`, some of `PERMISSIONS`. These are
read without running the code, shown and recorded; they are not enforced.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agent_orchestrator import protocols
from agent_orchestrator.base.builtin_plugins import BUILTIN_PLUGINS as BUILTIN_PLUGINS
from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.errors import AoError, Denied, NotFound, UsageError
from agent_orchestrator.protocols import earlier_names
from agent_orchestrator.protocols.members import missing_members, required_members, required_methods, with_defaults

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from agent_orchestrator.protocols.host import Host

SLOTS: Mapping[str, type[Any]] = {
    "runtime": protocols.Runtime,
    "agent": protocols.Agent,
    "workspace": protocols.Workspace,
    "tracker": protocols.Tracker,
    "scm": protocols.SCM,
    "notifier": protocols.Notifier,
    "terminal": protocols.Terminal,
}

PERMISSIONS = ("network", "files", "processes", "secrets")
"""What a plugin can declare that it needs: other machines, files beyond a session's, programs, the user's tokens and keys."""

Admit = Callable[[Path, bytes], bool]
"""Takes a file and its content, and returns whether it may be run."""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A third-party plugin, as far as it is known without running it."""

    slot: str
    """Empty until the plugin is imported."""
    name: str
    origin: str
    """Its file or its package."""
    version: str = ""
    digest: str = ""
    """SHA-256 of its file."""
    permissions: tuple[str, ...] | None = None
    """None if it declares none."""


@dataclass(frozen=True, slots=True)
class _DeclaredPlugin:
    """An imported plugin that `plugins:` named."""

    slot: str
    name: str
    factory: protocols.PluginFactory
    file: Path | None = None


class PluginRegistry:
    """The plugins that one configuration can use."""

    def __init__(
        self,
        plugins: Sequence[Mapping[str, str]] = (),
        folder: Path | None = None,
        *,
        installed: Collection[tuple[str, str]] = (),
        admit: Admit = lambda _path, _data: True,
        loaded: Callable[[PluginInfo], None] = lambda _code: None,
    ) -> None:
        """`installed` has slot and name of the named installed plugins; `loaded` is called with third-party code before it is run."""
        self._entries = plugins
        self._folder = folder or Path()
        self._named_installed = frozenset(installed)
        self._admit = admit
        self._on_loaded = loaded
        self._declared: list[_DeclaredPlugin] | None = None
        self._problems: list[AoError] = []

    def get(self, slot: str, name: str) -> protocols.PluginFactory:
        """Return the class or other factory of this plugin. Raises `NotFound`, which names the closest match."""
        _check_slot(slot)
        for declared in self._load_declared():
            if (declared.slot, declared.name) == (slot, name):
                return declared.factory
        reference = BUILTIN_PLUGINS.get(slot, {}).get(name)
        if reference is None and (code := installed_plugins(slot).get(name)):
            if (slot, name) not in self._named_installed:
                raise Denied(
                    f"the {slot} plugin {name} of {code.origin} is installed, but your configuration does not name it",
                    f"to use it, name it there as a {slot}: see ao plugins",
                )
            reference = entry_point(slot, name)
            self._on_loaded(code)
        if reference is None:
            raise self._unknown_plugin(slot, name)
        return _import_plugin(reference, f"the {slot} plugin {name}", slot)[1]

    def create(self, slot: str, name: str, config: Mapping[str, Any], host: Host) -> Any:
        """Construct a plugin with its own part of the configuration."""
        factory, description = self.get(slot, name), f"the {slot} plugin {name}"
        base = SLOTS[slot]
        try:
            if isinstance(factory, type):
                _check_members(factory, required_methods(base), slot, description)
            plugin = factory(config, host)
        except AoError:
            raise
        except Exception as error:
            raise UsageError(f"{description} could not be made: {_reason(error)}") from error
        _check_members(plugin, required_members(base), slot, description)
        if not isinstance(plugin, base):
            raise UsageError(
                f"{description} is a {type(plugin).__name__}, which is no {base.__name__}",
                f"let its class inherit from agent_orchestrator.protocols.{base.__name__}",
            )
        return plugin

    def names(self, slot: str) -> list[str]:
        """Return every name that `get` accepts for this slot."""
        _check_slot(slot)
        declared = {plugin.name for plugin in self._load_declared() if plugin.slot == slot}
        built_in = set(BUILTIN_PLUGINS.get(slot, {}))
        others = {name for allowed_slot, name in self._named_installed if allowed_slot == slot} - built_in
        return sorted(declared | built_in | (others and others & {point.name for point in _entry_points_of(slot)}))

    @property
    def files(self) -> tuple[Path, ...]:
        """The plugin files that `plugins:` names."""
        return tuple(self._folder / Path(entry["path"]).expanduser() for entry in self._entries if "path" in entry)

    def loaded_files(self) -> dict[str, tuple[str, str]]:
        """Return slot and name of each plugin file that was already imported, by path, without importing any."""
        return {str(plugin.file): (plugin.slot, plugin.name) for plugin in self._declared or () if plugin.file}

    @property
    def import_errors(self) -> list[AoError]:
        """The errors of the plugins that were imported so far."""
        return list(self._problems)

    def problems(self) -> list[AoError]:
        """Import the plugins named in `plugins:` and return the errors. The other plugins work regardless."""
        self._load_declared()
        return list(self._problems)

    def _load_declared(self) -> list[_DeclaredPlugin]:
        if self._declared is None:
            declared = []
            for entry in self._entries:
                try:
                    declared.append(load_declared(entry, self._folder, self._admit, self._on_loaded))
                except AoError as error:
                    self._problems.append(error)
            self._declared = declared  # at once: another thread may be listing them
        return self._declared

    def _unknown_plugin(self, slot: str, name: str) -> AoError:
        names = self.names(slot)
        matches = difflib.get_close_matches(name, names, 1)
        remedy = f"did you mean {matches[0]}? " if matches else ""
        remedy += f"known: {', '.join(names) or 'none'}"
        if self._problems:
            remedy += f"; not loaded: {self._problems[0].text}"
        return NotFound(f"there is no {slot} plugin {name!r}", remedy)


def installed_plugins(slot: str) -> dict[str, PluginInfo]:
    """Return the installed plugins of other distributions for a slot, by name, without importing them."""
    plugins = {}
    for point in _entry_points_of(slot):
        distribution = point.dist
        name, version = (distribution.name, distribution.version) if distribution else ("?", "")
        if point.value != BUILTIN_PLUGINS.get(slot, {}).get(point.name):
            file = _source_file(point)
            data = file.read_bytes() if file else b""
            declared = _declared_by(data, point.attr) if data else None
            digest = hashlib.sha256(data).hexdigest() if data else ""
            plugins[point.name] = PluginInfo(slot, point.name, f"the package {name}", version, digest, declared)
    return plugins


def entry_point(slot: str, name: str) -> str | None:
    """Return the import reference (`module:Class`) of an installed plugin, or None."""
    return next((point.value for point in _entry_points_of(slot) if point.name == name), None)


def _entry_points_of(slot: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=f"agent_orchestrator.{slot}")


def _source_file(point: EntryPoint) -> Path | None:
    """Return the file of an installed plugin's module, as its distribution lists it, or None."""
    module_path = point.module.replace(".", "/")
    candidates = (f"{module_path}.py", f"{module_path}/__init__.py")
    module_files = [file for file in (point.dist.files or ()) if str(file) in candidates] if point.dist else []
    paths = [Path(str(file.locate())) for file in module_files]
    return next((path for path in paths if path.is_file()), None)


def declared_permissions(path: Path) -> tuple[str, ...] | None:
    """Return the permissions that a plugin's file declares, or None if it declares none. The file is read, not run."""
    try:
        return _declared_by(read_regular_file(path.resolve()), "")
    except OSError:
        return None


def _declared_by(data: bytes, attribute: str) -> tuple[str, ...] | None:
    """Return the literal `permissions` of the class named `attribute`, else of the first class that has some, else None."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for class_node in sorted(classes, key=lambda node: node.name != attribute):
        for statement in class_node.body:
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign)
                else []
            )
            if any(isinstance(target, ast.Name) and target.id == "permissions" for target in targets):
                return _literal_permissions(statement.value)  # type: ignore[attr-defined]
    return None


def _literal_permissions(node: ast.expr | None) -> tuple[str, ...] | None:
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    declared = (
        [value] if isinstance(value, str) else value if isinstance(value, list | tuple | set | frozenset) else None
    )
    return None if declared is None else tuple(permission for permission in PERMISSIONS if permission in declared)


def load_declared(
    entry: Mapping[str, str],
    folder: Path,
    admit: Admit = lambda _path, _data: True,
    on_load: Callable[[PluginInfo], None] = lambda _code: None,
) -> _DeclaredPlugin:
    """Import the plugin that an entry of `plugins:` names (`{path: ./x.py}` or `{package: name}`)."""
    path, package = entry.get("path"), entry.get("package")
    if bool(path) == bool(package):
        raise UsageError("an entry of plugins: needs a path or a package", "for example {path: ./my_plugin.py}")
    if entry.get("slot"):
        _check_slot(entry["slot"])
    if path:
        file = (folder / Path(path).expanduser()).absolute()
        slot, factory = _import_plugin(file, f"the plugin file {file}", entry.get("slot"), admit, on_load)
        stem = file.stem
    else:
        assert package is not None
        on_load(PluginInfo(entry.get("slot", ""), entry.get("name", ""), f"the package {package}"))
        slot, factory = _import_plugin(package, f"the plugin package {package}", entry.get("slot"))
        stem = package.partition(":")[0].rpartition(".")[2]
    declared_name = getattr(factory.plugin if isinstance(factory, _ClientApiFactory) else factory, "name", None)
    name = entry.get("name") or (declared_name if isinstance(declared_name, str) else "") or stem.replace("_", "-")
    return _DeclaredPlugin(slot, name, factory, file if path else None)


def _import_plugin(
    source: str | Path,
    description: str,
    slot: str | None,
    admit: Admit = lambda _path, _data: True,
    on_loaded: Callable[[PluginInfo], None] = lambda _code: None,
) -> tuple[str, protocols.PluginFactory]:
    """Import a plugin from a file, a module or a `module:Class`, and return its slot and factory."""
    try:
        if isinstance(source, Path):
            return _select_plugin(_import_file(source, admit, on_loaded), None, description, slot)
        module, _, attribute = source.partition(":")
        return _select_plugin(importlib.import_module(module), attribute or None, description, slot)
    except AoError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's file can raise anything, also SystemExit
        raise UsageError(
            f"{description} cannot be loaded: {_reason(error)}", "mend it, or remove it from plugins:"
        ) from error


def _import_file(file: Path, admit: Admit, on_loaded: Callable[[PluginInfo], None]) -> ModuleType:
    """Read a plugin file once, and run exactly the content that was admitted."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    data = read_regular_file(file.resolve())
    if not admit(file, data):
        raise Denied(
            f"the plugin file {file} changed since it was trusted: it is not run", "read it, then trust it: ao trust"
        )
    on_loaded(PluginInfo("", file.stem, str(file), "", hashlib.sha256(data).hexdigest(), _declared_by(data, "")))
    name = f"agent_orchestrator_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(data, str(file), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _select_plugin(
    module: ModuleType, attribute: str | None, description: str, slot: str | None
) -> tuple[str, protocols.PluginFactory]:
    """Return the module's plugin with its slot: the attribute named, else `plugin`, else its single class that fits."""
    if attribute is None and hasattr(module, "plugin"):
        attribute = "plugin"
    if attribute is not None:
        factory: Any = module
        for part in attribute.split("."):
            factory = getattr(factory, part)
        if isinstance(factory, dict) and len(factory) == 1:
            factory = next(iter(factory.values()))
        if not callable(factory) and not hasattr(factory, "from_config"):
            raise UsageError(f"{description}: {attribute} is not a class")
        slot = slot or _slot_of(factory, description)
        return slot, _as_factory(factory, slot)
    classes = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]
    candidate_slots = [slot] if slot else list(SLOTS)
    fitting = [item for item in classes if any(_fits(item, candidate_slot) for candidate_slot in candidate_slots)]
    if len(fitting) != 1:
        class_count = f"has {len(fitting)} classes" if fitting else "has no class"
        raise UsageError(
            f"{description} {class_count} with the methods of a {slot or 'plugin'}",
            "say which by `plugin = TheClass` in it",
        )
    slot = slot or _slot_of(fitting[0], description)
    return slot, _as_factory(fitting[0], slot)


@dataclass(frozen=True, slots=True)
class _ClientApiFactory:
    """The factory of a `client.api.plugins` plugin: calls the class's `from_config`, or returns the instance as it is."""

    plugin: Any

    def __call__(self, config: Mapping[str, Any], host: Host) -> Any:
        plugin = self.plugin
        return plugin.from_config(config, host) if isinstance(plugin, type) else plugin  # type: ignore[attr-defined]


def _as_factory(plugin: Any, slot: str) -> protocols.PluginFactory:
    """Return what constructs a plugin. A class that does not inherit from its slot's base class gets the defaults of that class."""
    factory: protocols.PluginFactory = _ClientApiFactory(plugin) if hasattr(plugin, "from_config") else plugin
    return with_defaults(SLOTS[slot], factory) if isinstance(factory, type) else factory


def _check_members(plugin: object, members: Iterable[str], slot: str, description: str) -> None:
    """Raise `UsageError` if a plugin or its class lacks some of these members, or has a method under its earlier name."""
    for old_name, new_name in earlier_names.EARLIER_METHODS.get(slot, {}).items():
        if hasattr(plugin, old_name):
            raise UsageError(f"{description} has {old_name}, which is called {new_name} now", "rename it")
    if missing := missing_members(plugin, members):
        raise UsageError(f"{description} lacks {', '.join(missing)}", "see agent_orchestrator.protocols")


def _slot_of(factory: object, description: str) -> str:
    """Return the slot whose base class the factory inherits from, else the only slot whose methods it has.

    If it has all methods of two slots, and one slot's methods are a part of the other's (`terminal` of `scm`), the larger slot is meant.
    """
    slots = [slot for slot, base in SLOTS.items() if base in getattr(factory, "__mro__", ())]
    slots = slots or [slot for slot in SLOTS if _fits(factory, slot)]
    slots = [slot for slot in slots if not any(_has_more_methods(other, slot) for other in slots)]
    if len(slots) != 1:
        fits = f"fits the slots {', '.join(slots)}" if slots else "fits no slot"
        raise UsageError(
            f"{description} {fits}", "name its slot in plugins:, for example {path: ./x.py, slot: notifier}"
        )
    return slots[0]


def _fits(factory: object, slot: str) -> bool:
    methods = required_methods(SLOTS[slot])
    return not missing_members(factory, methods) and all(callable(getattr(factory, method)) for method in methods)


def _has_more_methods(slot: str, other: str) -> bool:
    return set(required_methods(SLOTS[slot])) > set(required_methods(SLOTS[other]))


def _check_slot(slot: str) -> None:
    if slot not in SLOTS:
        raise UsageError(f"there is no plugin slot {slot!r}", f"the slots are {', '.join(SLOTS)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    text = " ".join(str(error).split())
    return text if isinstance(error, ImportError | OSError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
