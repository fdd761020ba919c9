"""`ao import`: another orchestrator's configuration becomes this repository's, and every key is accounted for."""

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
    """The configuration here; each test begins with this one."""
    file = box.repo / "agent-orchestrator.yaml"
    file.write_text("# mine\ndefaults: {agent: demo, runtime: process}\nprojects:\n  app: {path: .}\n")
    return file


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SQUAD))
    return file


def test_what_is_brought_is_in_force(box: Sandbox, config: Path, squad: Path) -> None:
    told = box.json("import", str(squad))
    assert (told["kind"], told["written"], told["file"]) == ("claude-squad", True, str(config))
    assert {(one["key"], one["outcome"], one["to"]) for one in told["entries"]} == {
        ("default_program", "kept", "defaults.agent"),
        ("default_program", "changed", "defaults.agentConfig.model"),
        ("auto_yes", "changed", "defaults.agentConfig.permissions"),
        ("branch_prefix", "changed", "projects.app.branchPattern"),
        ("daemon_poll_interval", "dropped", ""),
    }
    assert config.read_text().startswith("# mine\n")
    box.ao("create", "named")
    assert box.session("named")["branch"] == "me/named"


def test_a_person_reads_what_became_of_each_key(box: Sandbox, config: Path, squad: Path) -> None:
    told = box.ao("import", str(squad)).stdout
    assert f"{squad} is a configuration of claude-squad." in told
    assert "kept     default_program       defaults.agent" in told
    assert 'the file says "demo"' in told
    assert "nothing is polled" in told
    assert told.endswith(f"{config} is written.\n")
    assert box.ao("import", str(squad)).stdout.endswith(f"{config} says all of it already.\n")


def test_tried_it_writes_nothing(box: Sandbox, config: Path, squad: Path) -> None:
    before = config.read_text()
    told = box.ao("import", "--dry-run", str(squad)).stdout
    assert config.read_text() == before
    assert "would be:" in told and "branchPattern: 'me/{{name}}'" in told


def test_the_files_own_words_stay_unless_they_are_to_go(box: Sandbox, config: Path, squad: Path) -> None:
    box.ao("import", str(squad))
    assert "agent: demo" in config.read_text()
    box.ao("import", "--replace", str(squad))
    assert "agent: codex" in config.read_text()


def test_another_file_may_be_written(box: Sandbox, config: Path, squad: Path, tmp_path: Path) -> None:
    before = config.read_text()
    box.ao("import", str(squad), "--output", str(tmp_path / "new.yaml"))
    assert config.read_text() == before
    assert "# Imported from config.json" in (tmp_path / "new.yaml").read_text()
    assert box.ao("config", "validate", str(tmp_path / "new.yaml")).returncode == 0


def test_the_predecessors_file_in_its_place_is_left_alone(box: Sandbox, config: Path) -> None:
    config.write_text(
        "readyThresholdMs: 5\ndefaults: {agent: demo, worker: {agent: demo}}\nprojects:\n  app: {path: .}\n"
    )
    before = config.read_text()
    told = box.json("import", str(config))
    assert (told["itself"], told["written"]) == (True, False)
    assert config.read_text() == before
    assert "loads as it is" in box.ao("import", str(config)).stdout


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("hello: world\n", "is no configuration that is known", 2),
        ("projects: [\n", "not valid YAML", 2),
        ("defaults: {agent: x}\nport: 1\nport: 2\n", "given twice", 2),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(
    box: Sandbox, config: Path, tmp_path: Path, text: str, said: str, code: int
) -> None:
    before = config.read_text()
    (tmp_path / "odd.yaml").write_text(text)
    done = box.ao("import", str(tmp_path / "odd.yaml"), check=False)
    assert done.returncode == code
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert config.read_text() == before


def test_a_file_that_is_not_there(box: Sandbox, config: Path) -> None:
    done = box.ao("import", "nowhere.yaml", check=False)
    assert done.returncode == 2
    assert "nowhere.yaml cannot be read" in done.stderr


# -- what is not the user's own ----------------------------------------------------------------------------------------


@pytest.fixture
def old(box: Sandbox, config: Path) -> Iterator[Path]:
    """A file that came with the repository, where there is no configuration yet."""
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


def test_what_came_with_the_repository_is_not_made_the_users_own_unseen(box: Sandbox, config: Path, old: Path) -> None:
    mark = box.folder / "was-run"
    for options in ((), ("--json",)):
        said = assert_refused(box.ao("import", *options, str(old), check=False), 1, str(old), "--dry-run", "--yes")
        assert "1 not seen yet" in said
    assert not config.exists()
    assert f"  projects.app.postCreate: touch {mark}\n" in box.ao("import", "--dry-run", str(old)).stdout
    assert not config.exists()
    assert f"touch {mark}" in box.ao("import", "--yes", str(old)).stdout
    assert not mark.exists()
    box.ao("new", "[[wait]]", "--name", "seen")
    assert mark.exists()


def test_the_users_own_file_is_not_asked_about(box: Sandbox, config: Path, old: Path) -> None:
    own = box.repo / "own.yaml"
    own.write_text(old.read_text().replace("was-run", "own-was-run"))
    told = box.json("import", str(own))
    assert told["written"] and told["digest"] == ""
    assert told["commands"] == [f"projects.app.postCreate: touch {box.folder / 'own-was-run'}"]
    own.unlink()
