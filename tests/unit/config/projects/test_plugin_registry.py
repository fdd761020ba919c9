"""The plugin registry: built-in, installed and local plugins load alike, and a broken one is reported with its error."""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import (
    BUILTIN_PLUGINS,
    PluginInfo,
    PluginRegistry,
    declared_permissions,
    installed_plugins,
)
from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.protocols import Agent

NOTIFIER = """
class Pager:
    def __init__(self, config, host):
        self.config = config

    async def notify(self, notification):
        pass
"""


def write(folder: Path, name: str, text: str) -> dict[str, str]:
    (folder / name).write_text(text)
    return {"path": f"./{name}"}


def test_the_built_ins_are_declared_as_entry_points() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    declared = {group.removeprefix("agent_orchestrator."): names for group, names in project["entry-points"].items()}
    assert declared == {slot: dict(names) for slot, names in BUILTIN_PLUGINS.items()}


def test_a_built_in_gets_its_configuration() -> None:
    agent = PluginRegistry().create("agent", "command", {"command": ["sh"]}, LocalHost())
    assert type(agent).__name__ == "CommandAgent"


def test_the_built_in_path_reads_no_installed_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("read installed metadata"))
    PluginRegistry().get("agent", "demo")


@pytest.fixture
def pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a third-party package with a plugin; its module leaves a file when it is run."""
    text = f"from pathlib import Path\nPath({str(tmp_path / 'was-run')!r}).touch()\n{NOTIFIER}    permissions = ['network']\n"
    (tmp_path / "my_pager.py").write_text(text)
    info = tmp_path / "my_pager-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-pager\nVersion: 1.0\n")
    (info / "RECORD").write_text("my_pager.py,,\n")
    (info / "entry_points.txt").write_text("[agent_orchestrator.notifier]\npager = my_pager:Pager\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_pager", None)


def others(registry: PluginRegistry) -> list[str]:
    """Return the notifiers that are not built in."""
    return [name for name in registry.names("notifier") if name not in BUILTIN_PLUGINS["notifier"]]


def test_an_installed_plugin_loads_if_the_configuration_names_it(pager: Path) -> None:
    loaded_plugins: list[PluginInfo] = []
    registry = PluginRegistry(
        installed=[("notifier", "pager"), ("notifier", "not-installed")], loaded=loaded_plugins.append
    )
    assert others(registry) == ["pager"]
    assert loaded_plugins == [] and not (pager / "was-run").exists()
    assert registry.create("notifier", "pager", {"a": 1}, LocalHost()).config == {"a": 1}
    [code] = loaded_plugins
    assert (code.origin, code.version, code.permissions) == ("the package my-pager", "1.0", ("network",))
    assert code.digest == hashlib.sha256((pager / "my_pager.py").read_bytes()).hexdigest()


def test_an_installed_plugin_that_is_not_named_is_not_run(pager: Path) -> None:
    registry = PluginRegistry(installed=[("agent", "pager")])
    assert others(registry) == []
    with pytest.raises(Denied, match=r"of the package my-pager is installed, but your configuration does not name it"):
        registry.create("notifier", "pager", {}, LocalHost())
    assert installed_plugins("notifier")["pager"].permissions == ("network",), "known without running it"
    assert "my_pager" not in sys.modules and not (pager / "was-run").exists()


def test_a_plugin_file_is_run_only_with_the_trusted_content(tmp_path: Path) -> None:
    entry = write(tmp_path, "mine.py", NOTIFIER)
    contents: list[bytes] = []
    loaded_plugins: list[PluginInfo] = []

    def admit(_path: Path, data: bytes) -> bool:
        contents.append(data)
        (tmp_path / "mine.py").write_text("raise SystemExit('swapped in the last moment')")
        return len(contents) == 1

    registry = PluginRegistry([entry], tmp_path, admit=admit, loaded=loaded_plugins.append)
    assert others(registry) == ["mine"], "what was admitted is what is run"
    assert [(plugin.origin, plugin.permissions) for plugin in loaded_plugins] == [(str(tmp_path / "mine.py"), None)]
    second = PluginRegistry([entry], tmp_path, admit=admit, loaded=loaded_plugins.append)
    assert "changed since it was trusted" in second.problems()[0].text and len(loaded_plugins) == 1


@pytest.mark.parametrize(
    ("text", "permissions"),
    [
        ("class A:\n    permissions = ('network', 'files')", ("network", "files")),
        ("class A:\n    permissions: list[str] = ['secrets', 'nonsense']", ("secrets",)),
        ("class A:\n    permissions = 'processes'", ("processes",)),
        ("class A:\n    permissions = ()", ()),
        ("class A:\n    permissions = open('/etc/passwd').read()", None),
        ("class A: pass", None),
        ("def broken(:", None),
    ],
)
def test_declared_permissions_are_read_without_running_the_file(
    tmp_path: Path, text: str, permissions: tuple[str, ...] | None
) -> None:
    file = tmp_path / "p.py"
    file.write_text(text)
    assert declared_permissions(file) == permissions


@pytest.mark.parametrize(
    ("text", "entry", "name"),
    [
        (NOTIFIER, {}, "my-file"),
        (NOTIFIER, {"name": "given"}, "given"),
        (NOTIFIER + "    name = 'own'\n", {}, "own"),
        (NOTIFIER + "class Other(Pager): pass\nplugin = Other\n", {}, "my-file"),
        (NOTIFIER + "from agent_orchestrator.protocols import Notifier\n", {}, "my-file"),
        (NOTIFIER + "    async def open(self): pass\n", {"slot": "notifier"}, "my-file"),
    ],
    ids=["alone", "name in the entry", "name in the class", "plugin =", "imports", "slot in the entry"],
)
def test_a_file_can_be_a_plugin(tmp_path: Path, text: str, entry: dict[str, str], name: str) -> None:
    registry = PluginRegistry([{**write(tmp_path, "my_file.py", text), **entry}], tmp_path)
    assert others(registry) == [name]
    assert registry.create("notifier", name, {"a": 1}, LocalHost()).config == {"a": 1}
    assert registry.problems() == []


def test_a_package_can_be_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_package_pager.py").write_text(NOTIFIER)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = PluginRegistry([{"package": "my_package_pager"}])
    assert others(registry) == ["my-package-pager"]
    monkeypatch.delitem(sys.modules, "my_package_pager")


def test_a_plugin_file_overrides_a_built_in_of_its_name(tmp_path: Path) -> None:
    agent = (
        "class Mine:\n    name = 'demo'\n    async def detect(self): ...\n    async def launch(self, context): ...\n"
    )
    registry = PluginRegistry([write(tmp_path, "mine.py", agent)], tmp_path)
    assert getattr(registry.get("agent", "demo"), "__name__", "") == "Mine"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n", "line 1: invalid syntax"),
        ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("x = 1\n", "has no class with the methods of a plugin"),
        (NOTIFIER + "class Second(Pager): pass\n", "has 2 classes with the methods of a plugin"),
        ("plugin = 3\n", "plugin is not a class"),
        ("class Odd: pass\nplugin = Odd\n", "fits no slot"),
        (NOTIFIER + "    async def open(self): pass\n", "fits the slots notifier, terminal"),
        (None, "there is no file"),
    ],
)
def test_a_broken_file_is_named_with_its_error_and_affects_no_other(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    broken = {"path": "./broken.py"} if text is None else write(tmp_path, "broken.py", text)
    registry = PluginRegistry([broken, write(tmp_path, "good.py", NOTIFIER)], tmp_path)
    (problem,) = registry.problems()
    assert str(tmp_path / "broken.py") in problem.text and reason in problem.text
    assert "\n" not in str(problem)
    registry.get("notifier", "good")
    with pytest.raises(NotFound, match="not loaded: the plugin file"):
        registry.get("notifier", "broken")


AGENT = """
from agent_orchestrator.protocols import Agent, ScreenRules

class Mine:
    screen, interrupt_keys, permission_keys = ScreenRules(), ("C-c",), {}
    def __init__(self, config, host): ...
    async def detect(self): ...
    async def launch(self, context): ...
    async def listen(self, run):
        yield
"""


@pytest.mark.parametrize("text", [AGENT, AGENT.replace("Mine:", "Mine(Agent):")], ids=["duck-typed", "inherits"])
def test_a_plugin_has_the_defaults_of_its_base_class(tmp_path: Path, text: str) -> None:
    agent = PluginRegistry([write(tmp_path, "mine.py", text)], tmp_path).create("agent", "mine", {}, LocalHost())
    assert isinstance(agent, Agent) and type(agent).__name__ == "Mine"
    assert agent.listens and not agent.answers_requests and not agent.has_headless_mode
    assert agent.escape_input("/new") == "/new" and agent.workspace == ""
    assert agent.conversation_files({}, tmp_path, "x") is None


def test_an_inheriting_class_belongs_to_the_slot_of_its_base_class(tmp_path: Path) -> None:
    text = AGENT.replace("Mine:", "Mine(Agent):") + "    async def open(self, window): ...\n"
    assert PluginRegistry([write(tmp_path, "mine.py", text)], tmp_path).problems() == []


def test_an_inheriting_class_without_a_required_method_is_refused(tmp_path: Path) -> None:
    text = (
        AGENT.replace("Mine:", "Mine(Agent):").replace("    async def launch(self, context): ...\n", "")
        + "plugin = Mine\n"
    )
    registry = PluginRegistry([write(tmp_path, "mine.py", text)], tmp_path)
    with pytest.raises(UsageError, match="the agent plugin mine lacks launch"):
        registry.create("agent", "mine", {}, LocalHost())


@pytest.mark.parametrize(
    ("old", "new"), [("typed(self, text)", "escape_input"), ("unsent(self, screen, text)", "has_unsent_text")]
)
def test_an_old_method_name_is_refused_with_its_new_name(tmp_path: Path, old: str, new: str) -> None:
    registry = PluginRegistry([write(tmp_path, "mine.py", f"{AGENT}    def {old}: ...\n")], tmp_path)
    with pytest.raises(UsageError, match=rf"has {old.partition('(')[0]}, which is called {new} now: rename it"):
        registry.create("agent", "mine", {}, LocalHost())


def test_an_old_class_name_is_refused_with_its_new_name(tmp_path: Path) -> None:
    registry = PluginRegistry(
        [write(tmp_path, "mine.py", AGENT.replace("ScreenRules", "Found, ScreenRules", 1))], tmp_path
    )
    (problem,) = registry.problems()
    assert "has no Found any more: use InstalledAgent, see docs/upgrading.md" in problem.text


def test_the_object_a_factory_returns_must_inherit_from_its_protocol(tmp_path: Path) -> None:
    factory = "def plugin(config, host):\n    return Mine(config, host)\n"
    text = AGENT + factory + "plugin.detect = plugin.launch = print\n"
    registry = PluginRegistry([write(tmp_path, "mine.py", text)], tmp_path)
    with pytest.raises(UsageError, match="is a Mine, which is no Agent: let its class inherit from"):
        registry.create("agent", "mine", {}, LocalHost())


@pytest.mark.parametrize("entry", [{}, {"path": "a.py", "package": "b"}, {"path": "a.py", "slot": "agnet"}])
def test_an_invalid_entry_is_reported(entry: dict[str, str]) -> None:
    assert len(PluginRegistry([entry]).problems()) == 1


def test_an_unknown_name_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(NotFound) as caught:
        PluginRegistry().get("agent", "comand")
    assert "no agent plugin 'comand': did you mean command? known: " in str(caught.value)


def test_an_unknown_slot_is_refused_with_the_seven_slots() -> None:
    with pytest.raises(UsageError, match="runtime, agent, workspace, tracker, scm, notifier, terminal"):
        PluginRegistry().get("editor", "vim")


def test_a_plugin_whose_constructor_fails_is_named(tmp_path: Path) -> None:
    registry = PluginRegistry(
        [write(tmp_path, "pager.py", NOTIFIER.replace("self.config = config", "config['url']"))], tmp_path
    )
    with pytest.raises(UsageError, match="the notifier plugin pager could not be made: KeyError: 'url'"):
        registry.create("notifier", "pager", {}, LocalHost())


def test_a_plugin_without_a_member_of_its_slot_is_refused(tmp_path: Path) -> None:
    text = (
        "class Half:\n    def __init__(self, config, host): ...\n"
        "    async def detect(self): ...\n    async def launch(self, context): ...\n"
    )
    registry = PluginRegistry([write(tmp_path, "half.py", text)], tmp_path)
    with pytest.raises(UsageError, match="the agent plugin half lacks screen, interrupt_keys, permission_keys"):
        registry.create("agent", "half", {}, LocalHost())


TRACKER = """
class Notes:
    %s
    def __init__(self, config, host): ...
    async def get(self, issue): ...
    async def list(self, **wanted): ...
    async def create(self, title, body="", labels=()): ...
    async def change(self, issue, change): ...
    async def comment(self, issue, text, key): ...
    def budget(self): return ["5 left"]
"""


@pytest.mark.anyio
async def test_a_tracker_that_inherits_nothing_has_the_defaults_that_it_lacks(tmp_path: Path) -> None:
    registry = PluginRegistry([write(tmp_path, "notes.py", TRACKER % "__slots__ = ()")], tmp_path)
    tracker = registry.create("tracker", "notes", {}, LocalHost())
    assert (tracker.hosted, tracker.pause(), await tracker.access()) == (True, 0.0, None)
    assert tracker.budget() == ["5 left"], "what the plugin has itself stays"
