"""`ao plugins new`: for every slot a package whose tests pass as they are, and fail when its plugin does wrong; installed, it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent_orchestrator.cli import scaffold
from agent_orchestrator.config.projects.plugin_registry import SLOTS, Registry
from agent_orchestrator.testing import sandbox
from agent_orchestrator.testing.sandbox import Sandbox

SOURCE = Path(scaffold.__file__).parents[2]
SOME = {"runtime": ("-k", "launch")}
"""Of a long suite, which our own runtimes run whole, this much."""
BROKEN = {
    "agent": ('raise Missing(f"the program', 'raise RuntimeError(f"the program'),
    "tracker": ('if said["key"] == key:', "if False:"),
    "scm": ("if head != how.head:", "if False:"),
    "notifier": ('"text": clean_text(notification.message)', '"text": str(notification.message)'),
    "workspace": ("return _noted(made, spec) if made else None", "return made"),
    "terminal": ("*window.command", '" ".join(window.command)'),
    "runtime": ('"-n", self._by, ', '"-n", self._by, "env", "-i", '),
}


def ao(folder: Path, *argv: str, path: str = str(SOURCE)) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent_orchestrator", "plugins", "new", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def written(folder: Path, slot: str, name: str) -> Path:
    done = ao(folder, slot, name, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert all(Path(told["path"], file).is_file() for file in told["files"])
    return Path(told["path"])


def suite(package: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *argv],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def test_every_slot_has_one() -> None:
    assert set(scaffold.SLOTS) == set(SLOTS) == set(BROKEN)


@pytest.mark.parametrize("slot", SLOTS)
def test_its_tests_pass_as_they_are(slot: str, tmp_path: Path) -> None:
    package = written(tmp_path, slot, f"my-{slot}")
    done = suite(package, *SOME.get(slot, ()))
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.parametrize("slot", BROKEN)
def test_its_tests_fail_when_the_plugin_does_wrong(slot: str, tmp_path: Path) -> None:
    package = written(tmp_path, slot, "broken")
    (file,) = package.glob("*.py")
    right, wrong = BROKEN[slot]
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    done = suite(package, "-x", *SOME.get(slot, ()))
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.parametrize("slot", SLOTS)
def test_the_file_alone_is_a_plugin_of_its_slot(slot: str, tmp_path: Path) -> None:
    package = written(tmp_path, slot, "alone")
    (file,) = package.glob("*.py")
    registry = Registry([{"path": str(file)}])
    assert registry.problems() == []
    assert "alone" in registry.names(slot)


def test_what_is_built_in_counts_and_not_what_was_when_it_was_installed(tmp_path: Path) -> None:
    for package, version, points in (
        ("agent_orchestrator", "0.0.1", "[agent_orchestrator.runtime]\nfirst = agent_orchestrator.first:First\n"),
        ("ao_others", "1.0", "[agent_orchestrator.runtime]\ntheirs = others:Theirs\n"),
    ):
        told = tmp_path / "site" / f"{package}-{version}.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
        )
        (told / "entry_points.txt").write_text(points)
    path = os.pathsep.join((str(tmp_path / "site"), str(SOURCE)))
    said = {name: ao(tmp_path, "runtime", name, path=path) for name in ("tmux", "first", "theirs")}
    assert {name: done.returncode for name, done in said.items()} == {"tmux": 1, "first": 0, "theirs": 1}
    assert "the runtime tmux is one of agent-orchestrator" in said["tmux"].stderr
    assert "the runtime theirs is one of ao-others" in said["theirs"].stderr


@pytest.mark.parametrize(
    ("argv", "said", "code"),
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
def test_what_cannot_be_is_refused(argv: tuple[str, ...], said: str, code: int, tmp_path: Path) -> None:
    done = ao(tmp_path, *argv)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine\n")
    done = ao(tmp_path, "agent", "mine", "--path", "mine")
    assert done.returncode == 1
    assert "is not empty: nothing was written" in done.stderr
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["README.md"]
    assert (tmp_path / "mine" / "README.md").read_text() == "mine\n"


def test_it_says_what_to_do_next(tmp_path: Path) -> None:
    done = ao(tmp_path, "agent", "mine", "--path", "a folder")
    assert f"cd '{tmp_path}/a folder'" in done.stdout
    assert "pip install -e '.[test]'" in done.stdout
    assert "defaults: {agent: mine}" in done.stdout


def test_installed_it_does_its_work_in_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = written(tmp_path, "agent", "scribe")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=package, check=True, capture_output=True
    )
    (wheel,) = (package / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert {name for name in packed.namelist() if "/" not in name} == {"ao_agent_scribe.py"}
        packed.extractall(tmp_path / "site")
    monkeypatch.setattr(sandbox, "launch", sandbox.fresh)
    with Sandbox(tmp_path / "box", env={"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{SOURCE}"}) as box:
        box.repository(config=scaffold.usage("agent", "scribe").replace("}", ", runtime: process}") + "\n")
        box.start()
        box.ao("new", "--name", "write", "remember the milk")
        box.until(lambda: box.session("write")["status"] == "review_pending", "its change to be ready", 60)
        assert "remember the milk" in box.git("show", "feature/write:scribe.md")
        (listed,) = [one for one in box.json("plugins")["plugins"] if one["name"] == "scribe"]
        assert (listed["slot"], listed["inForce"], listed["permissions"]) == ("agent", True, ["processes"])
