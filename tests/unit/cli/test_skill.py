"""`ao skill install`: where it goes, and that nothing of the user's is overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent_orchestrator.cli.setup import skill
from tests.unit.cli.conftest import Run

USUAL = (".claude/skills/agent-orchestrator/SKILL.md", ".agents/skills/agent-orchestrator/SKILL.md")


@pytest.fixture
def user(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return Path(os.environ["HOME"])


def test_it_goes_where_agents_look_and_only_once(user: Path, run: Run) -> None:
    ran = run("skill", "install")
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines()] == ["installed", "installed"]
    for place in USUAL:
        assert (user / place).read_text().startswith("---\nname: agent-orchestrator\n")
    assert [line.split()[0] for line in run("skill", "install").out.splitlines()] == ["current", "current"]


def test_one_agent_and_several_with_one_place(user: Path, run: Run) -> None:
    ran = run("skill", "install", "--agent", "codex", "--agent", "gemini", "--agent", "goose", "--json")
    places = json.loads(ran.out)["places"]
    assert [(one["agents"], one["state"]) for one in places] == [
        (["codex", "gemini"], "installed"),
        (["goose"], "installed"),
    ]
    assert [one["path"] for one in places] == [str(user / USUAL[1]), str(user / USUAL[0])]


def test_claudes_own_folder_may_be_elsewhere(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    assert run("skill", "install", "--agent", "claude-code").code == 0
    assert (tmp_path / "claude/skills/agent-orchestrator/SKILL.md").exists() and not (user / ".claude").exists()


def test_into_the_repository_from_any_folder_of_it(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "src").mkdir()
    monkeypatch.chdir(tmp_path / "repo" / "src")
    assert run("skill", "install", "--project", "--agent", "goose", "--agent", "claude-code").code == 0
    assert (tmp_path / "repo" / USUAL[1]).exists()
    assert (tmp_path / "repo" / USUAL[0]).exists() and not (user / USUAL[0]).exists()
    monkeypatch.chdir(tmp_path)
    ran = run("skill", "install", "--project")
    assert ran.code == 3 and "is in no repository" in ran.err


def test_an_older_one_of_ours_is_updated(user: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(skill, "skill_text", lambda: "---\nname: agent-orchestrator\n---\nold words\n")
        then.setattr(skill, "__version__", "0.0.1")
        run("skill", "install")
    assert [line.split()[0] for line in run("skill", "install").out.splitlines()] == ["updated", "updated"]
    assert "old words" not in (user / USUAL[0]).read_text()


@pytest.mark.parametrize("own", ["my own skill of that name\n", None])
def test_what_the_user_changed_is_left_alone(user: Path, run: Run, own: str | None) -> None:
    run("skill", "install")
    file = user / USUAL[0]
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


def test_a_place_that_cannot_be_written_is_told_in_a_line(user: Path, run: Run) -> None:
    user.mkdir(parents=True, exist_ok=True)
    (user / ".claude").write_text("a file")
    ran = run("skill", "install")
    assert ran.code == 1 and ".claude" in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize("link", [USUAL[0], f"{USUAL[0]}.new", ".claude/skills", ".claude"])
def test_no_link_of_a_repository_leads_it_elsewhere(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """A repository that somebody else made may have links in the places where the skill goes."""
    repo, mine = tmp_path / "repo", tmp_path / "mine"
    (repo / ".git").mkdir(parents=True)
    (repo / link).parent.mkdir(parents=True, exist_ok=True)
    if link.startswith(USUAL[0]):
        mine.write_text("what I wrote")
    else:
        mine.mkdir()
    (repo / link).symlink_to(mine)
    monkeypatch.chdir(repo)
    ran = run("skill", "install", "--project", "--force")
    assert mine.read_text() == "what I wrote" if mine.is_file() else list(mine.iterdir()) == []
    if link != f"{USUAL[0]}.new":
        assert ran.code != 0 and "leads out of the repository" in ran.err
        assert not (repo / ".agents").exists()
    else:
        assert ran.code == 0 and (repo / USUAL[0]).read_text().startswith("---")


def test_a_link_within_the_repository_is_its_own_matter(
    user: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "repo"
    for folder in (".git", ".claude", ".agents/skills"):
        (repo / folder).mkdir(parents=True)
    (repo / ".claude/skills").symlink_to("../.agents/skills")
    monkeypatch.chdir(repo)
    assert run("skill", "install", "--project").code == 0
    assert (repo / USUAL[1]).read_text() == (repo / USUAL[0]).read_text()
