"""`ao import`: another orchestrator's configuration is imported, with a result for every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

SQUAD = {"default_program": "codex --model o9", "auto_yes": True, "branch_prefix": "me/", "daemon_poll_interval": 1000}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("import")) as sandbox:
        sandbox.repository(config="")
        sandbox.start()
        yield sandbox


@pytest.fixture
def config(box: Sandbox) -> Path:
    """Write the configuration that each test begins with, and return its path."""
    file = box.repo / "agent-orchestrator.yaml"
    file.write_text("# mine\ndefaults: {agent: demo, runtime: process}\nprojects:\n  app: {path: .}\n")
    return file


@pytest.fixture
def squad_file(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SQUAD))
    return file


def test_an_imported_configuration_is_in_force(box: Sandbox, config: Path, squad_file: Path) -> None:
    report = box.json("import", str(squad_file))
    assert (report["kind"], report["written"], report["file"]) == ("claude-squad", True, str(config))
    assert {(entry["key"], entry["outcome"], entry["to"]) for entry in report["entries"]} == {
        ("default_program", "kept", "defaults.agent"),
        ("default_program", "changed", "defaults.agentConfig.model"),
        ("auto_yes", "changed", "defaults.agentConfig.permissions"),
        ("branch_prefix", "changed", "projects.app.branchPattern"),
        ("daemon_poll_interval", "dropped", ""),
    }
    assert config.read_text().startswith("# mine\n")
    box.ao("create", "named")
    assert box.session("named")["branch"] == "me/named"


def test_the_output_shows_the_result_for_each_key(box: Sandbox, config: Path, squad_file: Path) -> None:
    output = box.ao("import", str(squad_file)).stdout
    assert f"{squad_file} is a configuration of claude-squad." in output
    assert "kept     default_program       defaults.agent" in output
    assert 'the file says "demo"' in output
    assert "nothing is polled" in output
    assert output.endswith(f"{config} is written.\n")
    assert box.ao("import", str(squad_file)).stdout.endswith(f"{config} says all of it already.\n")


def test_a_dry_run_writes_nothing(box: Sandbox, config: Path, squad_file: Path) -> None:
    before = config.read_text()
    output = box.ao("import", "--dry-run", str(squad_file)).stdout
    assert config.read_text() == before
    assert "would be:" in output and "branchPattern: 'me/{{name}}'" in output


def test_existing_values_are_kept_unless_replace_is_given(box: Sandbox, config: Path, squad_file: Path) -> None:
    box.ao("import", str(squad_file))
    assert "agent: demo" in config.read_text()
    box.ao("import", "--replace", str(squad_file))
    assert "agent: codex" in config.read_text()


def test_the_configuration_can_be_written_to_another_file(
    box: Sandbox, config: Path, squad_file: Path, tmp_path: Path
) -> None:
    before = config.read_text()
    box.ao("import", str(squad_file), "--output", str(tmp_path / "new.yaml"))
    assert config.read_text() == before
    assert "# Imported from config.json" in (tmp_path / "new.yaml").read_text()
    assert box.ao("config", "validate", str(tmp_path / "new.yaml")).returncode == 0


def test_a_file_of_the_predecessor_that_loads_as_it_is_is_not_changed(box: Sandbox, config: Path) -> None:
    config.write_text(
        "readyThresholdMs: 5\ndefaults: {agent: demo, worker: {agent: demo}}\nprojects:\n  app: {path: .}\n"
    )
    before = config.read_text()
    report = box.json("import", str(config))
    assert (report["itself"], report["written"]) == (True, False)
    assert config.read_text() == before
    assert "loads as it is" in box.ao("import", str(config)).stdout


@pytest.mark.parametrize(
    ("text", "problem", "code"),
    [
        ("hello: world\n", "is no configuration that is known", 2),
        ("projects: [\n", "not valid YAML", 2),
        ("defaults: {agent: x}\nport: 1\nport: 2\n", "given twice", 2),
    ],
)
def test_an_unreadable_file_is_refused_in_one_line(
    box: Sandbox, config: Path, tmp_path: Path, text: str, problem: str, code: int
) -> None:
    before = config.read_text()
    (tmp_path / "odd.yaml").write_text(text)
    done = box.ao("import", str(tmp_path / "odd.yaml"), check=False)
    assert done.returncode == code
    assert problem in done.stderr and len(done.stderr.splitlines()) == 1
    assert config.read_text() == before


def test_a_missing_file_is_refused(box: Sandbox, config: Path) -> None:
    done = box.ao("import", "nowhere.yaml", check=False)
    assert done.returncode == 2
    assert "nowhere.yaml cannot be read" in done.stderr


# -- what is not the user's own ----------------------------------------------------------------------------------------


@pytest.fixture
def foreign_file(box: Sandbox, config: Path) -> Iterator[Path]:
    """Commit another orchestrator's file to a repository without a configuration, and yield its path."""
    config.unlink()
    file, mark = box.repo / "old.yaml", box.folder / "was-run"
    file.write_text(
        "readyThresholdMs: 5\ndefaults: {agent: demo, runtime: process}\n"
        f"projects:\n  app: {{path: ., postCreate: ['touch {mark}']}}\n"
    )
    box.git("add", "old.yaml", cwd=box.repo)
    box.git("commit", "-q", "-m", "theirs", cwd=box.repo)
    yield file
    box.git("reset", "-q", "--hard", "HEAD~1", cwd=box.repo)


def test_a_tracked_file_is_imported_only_after_it_was_shown(box: Sandbox, config: Path, foreign_file: Path) -> None:
    mark = box.folder / "was-run"
    for options in ((), ("--json",)):
        refusal = assert_refused(
            box.ao("import", *options, str(foreign_file), check=False), 1, str(foreign_file), "--dry-run", "--yes"
        )
        assert "1 not seen yet" in refusal
    assert not config.exists()
    assert f"  projects.app.postCreate: touch {mark}\n" in box.ao("import", "--dry-run", str(foreign_file)).stdout
    assert not config.exists()
    assert f"touch {mark}" in box.ao("import", "--yes", str(foreign_file)).stdout
    assert not mark.exists()
    box.ao("new", "[[wait]]", "--name", "seen")
    assert mark.exists()


def test_the_users_own_file_is_imported_without_a_question(box: Sandbox, config: Path, foreign_file: Path) -> None:
    own = box.repo / "own.yaml"
    own.write_text(foreign_file.read_text().replace("was-run", "own-was-run"))
    report = box.json("import", str(own))
    assert report["written"] and report["digest"] == ""
    assert report["commands"] == [f"projects.app.postCreate: touch {box.folder / 'own-was-run'}"]
    own.unlink()
