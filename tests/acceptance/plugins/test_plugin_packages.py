"""`ao plugins new`: every slot gets a package that works when installed and whose tests detect a broken plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent_orchestrator.cli import scaffold
from agent_orchestrator.config.projects.plugin_registry import SLOTS, PluginRegistry
from agent_orchestrator.testing import sandbox
from agent_orchestrator.testing.sandbox import Sandbox

SOURCE = Path(scaffold.__file__).parents[2]
TEST_SELECTION = {"runtime": ("-k", "launch")}
"""The part to run of a long suite, which the built-in runtimes run completely."""
BROKEN = {
    "agent": ('raise Missing(f"the program', 'raise RuntimeError(f"the program'),
    "tracker": ('if existing["key"] == key:', "if False:"),
    "scm": ("if head != how.head:", "if False:"),
    "notifier": ('"text": clean_text(notification.message)', '"text": str(notification.message)'),
    "workspace": ("return _with_note(workspace, spec) if workspace else None", "return workspace"),
    "terminal": ("*window.command", '" ".join(window.command)'),
    "runtime": ('"-n", self._by, ', '"-n", self._by, "env", "-i", '),
}


def new_plugin(folder: Path, *argv: str, path: str = str(SOURCE)) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent_orchestrator", "plugins", "new", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def new_package(folder: Path, slot: str, name: str) -> Path:
    result = new_plugin(folder, slot, name, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert all(Path(report["path"], file).is_file() for file in report["files"])
    return Path(report["path"])


def run_tests(package: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *argv],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def test_every_slot_has_a_template_and_a_broken_variant() -> None:
    assert set(scaffold.SLOTS) == set(SLOTS) == set(BROKEN)


@pytest.mark.parametrize("slot", SLOTS)
def test_the_tests_of_a_new_package_pass(slot: str, tmp_path: Path) -> None:
    package = new_package(tmp_path, slot, f"my-{slot}")
    done = run_tests(package, *TEST_SELECTION.get(slot, ()))
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.parametrize("slot", BROKEN)
def test_the_tests_of_a_package_fail_if_its_plugin_is_broken(slot: str, tmp_path: Path) -> None:
    package = new_package(tmp_path, slot, "broken")
    (file,) = package.glob("*.py")
    right, wrong = BROKEN[slot]
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    done = run_tests(package, "-x", *TEST_SELECTION.get(slot, ()))
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.parametrize("slot", SLOTS)
def test_the_single_file_of_a_package_is_a_plugin_of_its_slot(slot: str, tmp_path: Path) -> None:
    package = new_package(tmp_path, slot, "alone")
    (file,) = package.glob("*.py")
    registry = PluginRegistry([{"path": str(file)}])
    assert registry.problems() == []
    assert "alone" in registry.names(slot)


def test_built_in_names_are_taken_from_the_code_not_from_the_installed_metadata(tmp_path: Path) -> None:
    for package, version, points in (
        ("agent_orchestrator", "0.0.1", "[agent_orchestrator.runtime]\nfirst = agent_orchestrator.first:First\n"),
        ("ao_others", "1.0", "[agent_orchestrator.runtime]\ntheirs = others:Theirs\n"),
    ):
        dist_info = tmp_path / "site" / f"{package}-{version}.dist-info"
        dist_info.mkdir(parents=True)
        (dist_info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
        )
        (dist_info / "entry_points.txt").write_text(points)
    path = os.pathsep.join((str(tmp_path / "site"), str(SOURCE)))
    results = {name: new_plugin(tmp_path, "runtime", name, path=path) for name in ("tmux", "first", "theirs")}
    assert {name: done.returncode for name, done in results.items()} == {"tmux": 1, "first": 0, "theirs": 1}
    assert "the runtime tmux is one of agent-orchestrator" in results["tmux"].stderr
    assert "the runtime theirs is one of ao-others" in results["theirs"].stderr


@pytest.mark.parametrize(
    ("argv", "problem", "code"),
    [
        (("notifiers", "x"), "the slots are runtime, agent", 2),
        (("agent", "Mine"), "is no name for a plugin", 2),
        (("agent", "-x"), "", 2),
        (("agent", "../x"), "is no name for a plugin", 2),
        (("agent", "x" * 41), "is no name for a plugin", 2),
        (("runtime", "tmux"), "the runtime tmux is one of agent-orchestrator", 1),
        (("scm", "local"), "has a meaning of its own", 1),
    ],
)
def test_invalid_slots_and_names_are_refused(argv: tuple[str, ...], problem: str, code: int, tmp_path: Path) -> None:
    done = new_plugin(tmp_path, *argv)
    assert (done.returncode, done.stdout) == (code, "")
    assert problem in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine\n")
    done = new_plugin(tmp_path, "agent", "mine", "--path", "mine")
    assert done.returncode == 1
    assert "is not empty: nothing was written" in done.stderr
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["README.md"]
    assert (tmp_path / "mine" / "README.md").read_text() == "mine\n"


def test_the_output_names_the_next_steps(tmp_path: Path) -> None:
    done = new_plugin(tmp_path, "agent", "mine", "--path", "a folder")
    assert f"cd '{tmp_path}/a folder'" in done.stdout
    assert "pip install -e '.[test]'" in done.stdout
    assert "defaults: {agent: mine}" in done.stdout


def test_an_installed_package_works_in_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = new_package(tmp_path, "agent", "scribe")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=package, check=True, capture_output=True
    )
    (wheel,) = (package / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert {name for name in packed.namelist() if "/" not in name} == {"ao_agent_scribe.py"}
        packed.extractall(tmp_path / "site")
    monkeypatch.setattr(sandbox, "launch", sandbox.launch_fresh)
    with Sandbox(tmp_path / "box", env={"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{SOURCE}"}) as box:
        box.repository(config=scaffold.usage("agent", "scribe").replace("}", ", runtime: process}") + "\n")
        box.start()
        box.ao("new", "--name", "write", "remember the milk")
        box.wait_until(lambda: box.session("write")["status"] == "review_pending", "its change to be ready", 60)
        assert "remember the milk" in box.git("show", "feature/write:scribe.md")
        (listed,) = [plugin for plugin in box.json("plugins")["plugins"] if plugin["name"] == "scribe"]
        assert (listed["slot"], listed["inForce"], listed["permissions"]) == ("agent", True, ["processes"])
