"""Name → plugin class, for the seven slots.

Plugins come from three places: a file or package named in `plugins:`, this package, and installed distributions (entry points of the
group `agent_orchestrator.<slot>`). Wherever it comes from, a plugin is imported by `_plugin_of` and made by `Registry.make`;
ours have no other way in. Where two have the same name, the first place in that order wins.

A file declares its plugin by `plugin = TheClass`, or has a single class with all the methods of one slot. Its name is the
class's `name`, else the file's; an entry in `plugins:` may say `name` and `slot` itself. A plugin that is written with the classes of
`agent_orchestrator.client.api.plugins` may also be an object that is made already: `plugin = TheClass()`, `plugin = {"agent": TheClass()}`.

Code of others is imported only where it was named: an installed plugin when it is among those that the configuration names, a file when
it is admitted with the very content that is run. A plugin says by its class's `permissions` what it needs of the machine: some of
`PERMISSIONS`. That is read without running it, is shown and written down; nothing holds it to its word.
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
from agent_orchestrator.base.builtin_plugins import BUILT_IN as BUILT_IN
from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.errors import AoError, Denied, NotFound, UsageError

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
"""What a plugin may say that it needs: to reach other machines, files beyond a session's, programs, the user's tokens and keys."""

Admit = Callable[[Path, bytes], bool]
"""May a file be run with this content?"""


@dataclass(frozen=True, slots=True)
class Code:
    """A plugin that does not come with this package, as it can be known without running it."""

    slot: str
    """Nothing: it is not known before it is imported."""
    name: str
    origin: str
    """Its file, or its package."""
    version: str = ""
    digest: str = ""
    """SHA-256 of its file."""
    permissions: tuple[str, ...] | None = None
    """None: it declares none."""


@dataclass(frozen=True, slots=True)
class _Declared:
    """A plugin that `plugins:` named, imported."""

    slot: str
    name: str
    factory: protocols.PluginFactory
    file: Path | None = None


class Registry:
    """The plugins that one configuration may use."""

    def __init__(
        self,
        plugins: Sequence[Mapping[str, str]] = (),
        folder: Path | None = None,
        *,
        installed: Collection[tuple[str, str]] = (),
        admit: Admit = lambda _path, _data: True,
        loaded: Callable[[Code], None] = lambda _code: None,
    ) -> None:
        """`installed`: slot and name of the installed ones that are named; `loaded` is told of code of others before it is run."""
        self._named = plugins
        self._folder = folder or Path()
        self._allowed = frozenset(installed)
        self._admit = admit
        self._tell = loaded
        self._declared: list[_Declared] | None = None
        self._problems: list[AoError] = []

    def get(self, slot: str, name: str) -> protocols.PluginFactory:
        """The class (or other factory) that makes this plugin; `NotFound` names the nearest."""
        _check_slot(slot)
        for declared in self._load():
            if (declared.slot, declared.name) == (slot, name):
                return declared.factory
        reference = BUILT_IN.get(slot, {}).get(name)
        if reference is None and (found := installed(slot).get(name)):
            if (slot, name) not in self._allowed:
                raise Denied(
                    f"the {slot} plugin {name} of {found.origin} is installed, but your configuration does not name it",
                    f"to use it, name it there as a {slot}: see ao plugins",
                )
            reference = entry_point(slot, name)
            self._tell(found)
        if reference is None:
            raise self._unknown(slot, name)
        return _plugin_of(reference, f"the {slot} plugin {name}", slot)[1]

    def make(self, slot: str, name: str, config: Mapping[str, Any], host: Host) -> Any:
        """Make a plugin with its own part of the configuration."""
        factory = self.get(slot, name)
        try:
            plugin = factory(config, host)
        except AoError:
            raise
        except Exception as error:
            raise UsageError(f"the {slot} plugin {name} could not be made: {_reason(error)}") from error
        lacks = [member for member in _members(SLOTS[slot]) if not hasattr(plugin, member)]
        if lacks:
            raise UsageError(f"the {slot} plugin {name} lacks {', '.join(lacks)}", "see agent_orchestrator.protocols")
        return plugin

    def names(self, slot: str) -> list[str]:
        """Every name that `get` knows."""
        _check_slot(slot)
        declared = {plugin.name for plugin in self._load() if plugin.slot == slot}
        ours = set(BUILT_IN.get(slot, {}))
        others = {name for one, name in self._allowed if one == slot} - ours
        return sorted(declared | ours | (others and others & {point.name for point in _points(slot)}))

    @property
    def files(self) -> tuple[Path, ...]:
        """Those of its plugins that are files."""
        return tuple(self._folder / Path(one["path"]).expanduser() for one in self._named if "path" in one)

    def known(self) -> dict[str, tuple[str, str]]:
        """Slot and name of each file that was imported already, by its path. Imports none."""
        return {str(one.file): (one.slot, one.name) for one in self._declared or () if one.file}

    @property
    def failed(self) -> list[AoError]:
        """What went wrong with those that were to be imported up to now."""
        return list(self._problems)

    def problems(self) -> list[AoError]:
        """What is wrong with the plugins named in `plugins:`; the others work all the same."""
        self._load()
        return list(self._problems)

    def _load(self) -> list[_Declared]:
        if self._declared is None:
            self._declared = []
            for entry in self._named:
                try:
                    self._declared.append(load_declared(entry, self._folder, self._admit, self._tell))
                except AoError as error:
                    self._problems.append(error)
        return self._declared

    def _unknown(self, slot: str, name: str) -> AoError:
        known = self.names(slot)
        near = difflib.get_close_matches(name, known, 1)
        remedy = f"did you mean {near[0]}? " if near else ""
        remedy += f"known: {', '.join(known) or 'none'}"
        if self._problems:
            remedy += f"; not loaded: {self._problems[0].text}"
        return NotFound(f"there is no {slot} plugin {name!r}", remedy)


def installed(slot: str) -> dict[str, Code]:
    """The plugins of other distributions that are installed for a slot, by name. Imports none of them."""
    found = {}
    for point in _points(slot):
        distribution = point.dist
        name, version = (distribution.name, distribution.version) if distribution else ("?", "")
        if point.value != BUILT_IN.get(slot, {}).get(point.name):
            file = _source(point)
            data = file.read_bytes() if file else b""
            declared = _declared_by(data, point.attr) if data else None
            digest = hashlib.sha256(data).hexdigest() if data else ""
            found[point.name] = Code(slot, point.name, f"the package {name}", version, digest, declared)
    return found


def entry_point(slot: str, name: str) -> str | None:
    """Where an installed plugin is."""
    return next((point.value for point in _points(slot) if point.name == name), None)


def _points(slot: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=f"agent_orchestrator.{slot}")


def _source(point: EntryPoint) -> Path | None:
    """The file of an installed plugin's module, as its distribution lists it."""
    place = point.module.replace(".", "/")
    wanted = (f"{place}.py", f"{place}/__init__.py")
    listed = [file for file in (point.dist.files or ()) if str(file) in wanted] if point.dist else []
    paths = [Path(str(file.locate())) for file in listed]
    return next((path for path in paths if path.is_file()), None)


def declared_in(path: Path) -> tuple[str, ...] | None:
    """The permissions that a plugin's file declares; none: it declares none. The file is read, not run."""
    try:
        return _declared_by(read_plain(path.resolve()), "")
    except OSError:
        return None


def _declared_by(data: bytes, attribute: str) -> tuple[str, ...] | None:
    """By a class's `permissions`: that of the class by this name, else the first that has some."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for each in sorted(classes, key=lambda node: node.name != attribute):
        for line in each.body:
            targets = (
                line.targets
                if isinstance(line, ast.Assign)
                else [line.target]
                if isinstance(line, ast.AnnAssign)
                else []
            )
            if any(isinstance(one, ast.Name) and one.id == "permissions" for one in targets):
                return _words(line.value)  # type: ignore[attr-defined]
    return None


def _words(node: ast.expr | None) -> tuple[str, ...] | None:
    try:
        said = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    given = [said] if isinstance(said, str) else said if isinstance(said, list | tuple | set | frozenset) else None
    return None if given is None else tuple(one for one in PERMISSIONS if one in given)


def load_declared(
    entry: Mapping[str, str],
    folder: Path,
    admit: Admit = lambda _path, _data: True,
    tell: Callable[[Code], None] = lambda _code: None,
) -> _Declared:
    """Import the plugin that an entry of `plugins:` (`{path: ./x.py}` or `{package: name}`) names."""
    path, package = entry.get("path"), entry.get("package")
    if bool(path) == bool(package):
        raise UsageError("an entry of plugins: needs a path or a package", "for example {path: ./my_plugin.py}")
    if entry.get("slot"):
        _check_slot(entry["slot"])
    if path:
        file = (folder / Path(path).expanduser()).absolute()
        slot, factory = _plugin_of(file, f"the plugin file {file}", entry.get("slot"), admit, tell)
        stem = file.stem
    else:
        assert package is not None
        tell(Code(entry.get("slot", ""), entry.get("name", ""), f"the package {package}"))
        slot, factory = _plugin_of(package, f"the plugin package {package}", entry.get("slot"))
        stem = package.partition(":")[0].rpartition(".")[2]
    own = getattr(getattr(factory, "of", factory), "name", None)
    name = entry.get("name") or (own if isinstance(own, str) else "") or stem.replace("_", "-")
    return _Declared(slot, name, factory, file if path else None)


def _plugin_of(
    source: str | Path,
    what: str,
    slot: str | None,
    admit: Admit = lambda _path, _data: True,
    tell: Callable[[Code], None] = lambda _code: None,
) -> tuple[str, protocols.PluginFactory]:
    """Import a plugin from a file, a module or a `module:Class`: the one way in for all of them."""
    try:
        if isinstance(source, Path):
            return _choose(_import_file(source, admit, tell), None, what, slot)
        module, _, attribute = source.partition(":")
        return _choose(importlib.import_module(module), attribute or None, what, slot)
    except AoError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's file may do anything at all
        raise UsageError(f"{what} cannot be loaded: {_reason(error)}", "mend it, or remove it from plugins:") from error


def _import_file(file: Path, admit: Admit, tell: Callable[[Code], None]) -> ModuleType:
    """What is run is what was admitted: the file is read once."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    data = read_plain(file.resolve())
    if not admit(file, data):
        raise Denied(
            f"the plugin file {file} changed since it was trusted: it is not run", "read it, then trust it: ao trust"
        )
    tell(Code("", file.stem, str(file), "", hashlib.sha256(data).hexdigest(), _declared_by(data, "")))
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


def _choose(
    module: ModuleType, attribute: str | None, what: str, slot: str | None
) -> tuple[str, protocols.PluginFactory]:
    """The module's plugin, with its slot: the attribute named, else `plugin`, else its single class that fits."""
    if attribute is None and hasattr(module, "plugin"):
        attribute = "plugin"
    if attribute is not None:
        factory: Any = module
        for part in attribute.split("."):
            factory = getattr(factory, part)
        if isinstance(factory, dict) and len(factory) == 1:
            factory = next(iter(factory.values()))
        if not callable(factory) and not hasattr(factory, "made"):
            raise UsageError(f"{what}: {attribute} is not a class")
        return slot or _slot_of(factory, what), _as_factory(factory)
    own = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]
    wanted = [slot] if slot else list(SLOTS)
    fitting = [item for item in own if any(_fits(item, one) for one in wanted)]
    if len(fitting) != 1:
        found = f"has {len(fitting)} classes" if fitting else "has no class"
        raise UsageError(
            f"{what} {found} with the methods of a {slot or 'plugin'}", "say which by `plugin = TheClass` in it"
        )
    return slot or _slot_of(fitting[0], what), _as_factory(fitting[0])


@dataclass(frozen=True, slots=True)
class _Written:
    """Make a plugin of `client.api.plugins`, whose class says itself how; one that is made already is taken as it is."""

    of: Any

    def __call__(self, config: Mapping[str, Any], host: Host) -> Any:
        of = self.of
        return of.made(config, host) if isinstance(of, type) else of  # type: ignore[attr-defined]


def _as_factory(plugin: Any) -> protocols.PluginFactory:
    factory: protocols.PluginFactory = _Written(plugin) if hasattr(plugin, "made") else plugin
    return factory


def _slot_of(factory: object, what: str) -> str:
    """The slot whose methods it has; one that has all of another's, as `scm` of `terminal`, is meant itself."""
    slots = [slot for slot in SLOTS if _fits(factory, slot)]
    slots = [slot for slot in slots if not any(_wider(other, slot) for other in slots)]
    if len(slots) != 1:
        fits = f"fits the slots {', '.join(slots)}" if slots else "fits no slot"
        raise UsageError(f"{what} {fits}", "name its slot in plugins:, for example {path: ./x.py, slot: notifier}")
    return slots[0]


def _fits(factory: object, slot: str) -> bool:
    return all(callable(getattr(factory, method, None)) for method in _methods(SLOTS[slot]))


def _wider(slot: str, other: str) -> bool:
    return set(_methods(SLOTS[slot])) > set(_methods(SLOTS[other]))


def _methods(protocol: type[Any]) -> Iterable[str]:
    return [name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")]


def _members(protocol: type[Any]) -> Iterable[str]:
    return [*_methods(protocol), *vars(protocol).get("__annotations__", {})]


def _check_slot(slot: str) -> None:
    if slot not in SLOTS:
        raise UsageError(f"there is no plugin slot {slot!r}", f"the slots are {', '.join(SLOTS)}")


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    text = " ".join(str(error).split())
    return text if isinstance(error, ImportError | OSError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
