"""A change is shown within bounds, however large the files in it are."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from agent_orchestrator.base.git import diff
from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.diff import MAX_FILE_BYTES, MAX_PATCH_BYTES, render_change
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.testing.contracts.workspace import git_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    git_in(repo, "init", "-q", "-b", "main")
    (repo / "a").write_text("a\n")
    (repo / "b").write_text("b\n" * 100)
    git_in(repo, "add", ".")
    git_in(repo, "commit", "-qm", "first")
    return repo


@pytest.fixture
def git(repo: Path) -> Git:
    return Git(LocalHost(), repo)


async def test_what_is_small_is_shown_whole_and_can_be_applied(git: Git, repo: Path, tmp_path: Path) -> None:
    (repo / "b").rename(repo / "c")
    (repo / "a").write_text("changed\n")
    (repo / "data").write_bytes(bytes(range(256)) * 10)
    shown = await render_change(git, "main", None)
    assert shown.patch == await git.diff("main") and shown.stat == await git.diff("main", form="stat")
    assert shown.files == ("a", "c", "data") and shown.omitted == ()
    copy = tmp_path / "copy"
    git_in(tmp_path, "clone", "-q", str(repo), str(copy))
    subprocess.run(["git", "apply"], cwd=copy, input=shown.patch.encode(), check=True)
    assert (copy / "data").read_bytes() == (repo / "data").read_bytes()


@pytest.mark.parametrize("hidden", ["-diff", "binary"])
@pytest.mark.parametrize("head", ["main", None])
async def test_attributes_hide_no_text(git: Git, repo: Path, tmp_path: Path, hidden: str, head: str | None) -> None:
    first = git_in(repo, "rev-parse", "HEAD").strip()
    (repo / ".gitattributes").write_text(f"* {hidden}\n")
    (repo / "a").write_text("import os\n")
    (repo / "b").rename(repo / "c d")
    (repo / "c d").write_text("b\n" * 99 + "evil\n")
    (repo / "data").write_bytes(bytes(range(256)) * 10)
    (repo / "z.py").write_bytes(b"evil = '\xff'\n")
    if head:
        git_in(repo, "add", ".")
        git_in(repo, "commit", "-qm", "second")
    shown = await render_change(git, first, head)
    assert {"-a", "+import os", "-b", "+evil", "+evil = '\ufffd'"} <= set(shown.patch.splitlines())
    assert shown.patch.count("GIT binary patch") == 1, "what is no text is none"
    assert shown.omitted == ()


async def test_what_is_hidden_behind_much_that_is_hidden_is_told_to_be_missing(git: Git, repo: Path) -> None:
    (repo / ".gitattributes").write_text("* binary\n")
    for number in range(5):
        (repo / f"f{number}").write_text("x" * (3 << 20) + "\n")
    (repo / "z.py").write_text("evil\n")
    shown = await render_change(git, "main", None)
    assert "GIT binary patch" not in shown.patch and len(shown.patch) <= MAX_PATCH_BYTES
    assert shown.omitted == ("f3", "f4", "z.py")


async def test_a_file_of_300_gb_is_not_opened(git: Git, repo: Path) -> None:
    (repo / "b").unlink()  # what is new may be what is gone by another name: Git would read it to see
    (repo / ".gitattributes").write_text("* text\n")  # and this has Git read whatever it looks at
    with (repo / "huge").open("wb") as file:
        file.truncate(300 << 30)
    (repo / "a").write_text("changed\n")
    async with asyncio.timeout(60):
        shown = await render_change(git, "main", None)
    assert shown.omitted == ("huge",) and set(shown.files) == {".gitattributes", "a", "b", "huge"}
    assert "+changed" in shown.patch and "huge" not in shown.patch and "huge | too large to be compared" in shown.stat


async def test_what_is_committed_counts_before_and_after(git: Git, repo: Path) -> None:
    large = os.urandom(MAX_FILE_BYTES + 1)
    for name in ("was [large]", "is large"):
        (repo / name).write_bytes(large if name.startswith("was") else b"small")
    git_in(repo, "add", ".")
    git_in(repo, "commit", "-qm", "second")
    git_in(repo, "checkout", "-qb", "work")
    (repo / "was [large]").write_bytes(b"small")
    (repo / "is large").write_bytes(large)
    (repo / "a").write_text("changed\n")
    git_in(repo, "commit", "-qam", "third")
    for head in ("work", None):
        shown = await render_change(git, "main", head)
        assert shown.omitted == ("is large", "was [large]") and shown.files == ("a", "is large", "was [large]")
        assert "+changed" in shown.patch and "large" not in shown.patch


async def test_a_long_patch_ends_with_a_whole_file(git: Git, repo: Path) -> None:
    for number in range(5):
        (repo / f"f{number}").write_text(f"{number}" * 79 + "\n" + "x" * (3 << 20) + "\n")
    shown = await render_change(git, "main", None)
    assert 6 << 20 < len(shown.patch) <= MAX_PATCH_BYTES
    assert shown.files == ("f0", "f1", "f2", "f3", "f4") and shown.omitted == ("f3", "f4")
    assert shown.patch.count("diff --git ") == 3 and shown.patch.endswith("x" * 9 + "\n")


async def test_where_very_many_are_too_large_none_is_compared(
    git: Git, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "_NAMED", 1)
    for name in ("one", "two"):
        with (repo / name).open("wb") as file:
            file.truncate(1 << 40)
    shown = await render_change(git, "main", None)
    assert shown.patch == "" and shown.omitted == shown.files == ("one", "two")


async def test_what_fails_fails_though_it_is_cut_off(git: Git) -> None:
    with pytest.raises(GitFailed, match="revision"):
        await git.run("diff", "nowhere", "--", most=100)
    assert len((await git.run("show", "--stat", "HEAD", most=10)).out) == 10
