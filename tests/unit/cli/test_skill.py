"""`ao skill install`: the folders it writes to, and that no file of the user is overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent_orchestrator.cli.setup import skill
from tests.unit.cli.conftest import Run

DEFAULT_FILES = (".claude/skills/agent-orchestrator/SKILL.md", ".agents/skills/agent-orchestrator/SKILL.md")


@pytest.fixture
def user(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return Path(os.environ["HOME"])


def test_the_skill_is_installed_once_per_folder(user: Path, run: Run) -> None:
    ran = run("skill", "install")
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines()] == ["installed", "installed"]
    for place in DEFAULT_FILES:
        assert (user / place).read_text().startswith("---\nname: agent-orchestrator\n")
    assert [line.split()[0] for line in run("skill", "install").out.splitlines()] == ["current", "current"]


def test_agents_with_a_common_folder_share_the_file(user: Path, run: Run) -> None:
    ran = run("skill", "install", "--agent", "codex", "--agent", "gemini", "--agent", "goose", "--json")
    places = json.loads(ran.out)["places"]
    assert [(target["agents"], target["state"]) for target in places] == [
        (["codex", "gemini"], "installed"),
        (["goose"], "installed"),
    ]
    assert [target["path"] for target in places] == [str(user / DEFAULT_FILES[1]), str(user / DEFAULT_FILES[0])]


def test_claudes_folder_may_be_configured(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    assert run("skill", "install", "--agent", "claude-code").code == 0
    assert (tmp_path / "claude/skills/agent-orchestrator/SKILL.md").exists() and not (user / ".claude").exists()


def test_the_skill_can_be_installed_into_a_repository(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "src").mkdir()
    monkeypatch.chdir(tmp_path / "repo" / "src")
    assert run("skill", "install", "--project", "--agent", "goose", "--agent", "claude-code").code == 0
    assert (tmp_path / "repo" / DEFAULT_FILES[1]).exists()
    assert (tmp_path / "repo" / DEFAULT_FILES[0]).exists() and not (user / DEFAULT_FILES[0]).exists()
    monkeypatch.chdir(tmp_path)
    ran = run("skill", "install", "--project")
    assert ran.code == 3 and "is in no repository" in ran.err


def test_an_older_version_is_updated(user: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(skill, "skill_text", lambda: "---\nname: agent-orchestrator\n---\nold words\n")
        then.setattr(skill, "__version__", "0.0.1")
        run("skill", "install")
    assert [line.split()[0] for line in run("skill", "install").out.splitlines()] == ["updated", "updated"]
    assert "old words" not in (user / DEFAULT_FILES[0]).read_text()


@pytest.mark.parametrize("own", ["my own skill of that name\n", None])
def test_a_file_changed_by_the_user_is_kept(user: Path, run: Run, own: str | None) -> None:
    run("skill", "install")
    file = user / DEFAULT_FILES[0]
    own = own or file.read_text().replace("# Agent Orchestrator", "# Agent Orchestrator, as we use it")
    file.write_text(own)
    ran = run("skill", "install")
    assert ran.code == 1 and str(file) in ran.err and "--force" in ran.err
    assert file.read_text() == own and ran.out.splitlines()[0].startswith("kept")
    assert run("skill", "install", "--force").code == 0
    assert file.read_text() != own


def test_printing_writes_nothing(user: Path, run: Run) -> None:
    ran = run("skill", "install", "--print")
    assert ran.out == skill.skill_text() and not (user / ".claude").exists()


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(user: Path, run: Run) -> None:
    user.mkdir(parents=True, exist_ok=True)
    (user / ".claude").write_text("a file")
    ran = run("skill", "install")
    assert ran.code == 1 and ".claude" in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize("link", [DEFAULT_FILES[0], f"{DEFAULT_FILES[0]}.new", ".claude/skills", ".claude"])
def test_symlinks_that_leave_the_repository_are_refused(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """A cloned repository may have symlinks where the skill is written."""
    repo, mine = tmp_path / "repo", tmp_path / "mine"
    (repo / ".git").mkdir(parents=True)
    (repo / link).parent.mkdir(parents=True, exist_ok=True)
    if link.startswith(DEFAULT_FILES[0]):
        mine.write_text("what I wrote")
    else:
        mine.mkdir()
    (repo / link).symlink_to(mine)
    monkeypatch.chdir(repo)
    ran = run("skill", "install", "--project", "--force")
    assert mine.read_text() == "what I wrote" if mine.is_file() else list(mine.iterdir()) == []
    if link != f"{DEFAULT_FILES[0]}.new":
        assert ran.code != 0 and "leads out of the repository" in ran.err
        assert not (repo / ".agents").exists()
    else:
        assert ran.code == 0 and (repo / DEFAULT_FILES[0]).read_text().startswith("---")


def test_symlinks_within_the_repository_are_followed(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "repo"
    for folder in (".git", ".claude", ".agents/skills"):
        (repo / folder).mkdir(parents=True)
    (repo / ".claude/skills").symlink_to("../.agents/skills")
    monkeypatch.chdir(repo)
    assert run("skill", "install", "--project").code == 0
    assert (repo / DEFAULT_FILES[1]).read_text() == (repo / DEFAULT_FILES[0]).read_text()
