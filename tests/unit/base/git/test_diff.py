"""Rendering a change: the size is limited, however large the files in it are."""

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


async def test_a_small_change_is_rendered_completely_and_can_be_applied(git: Git, repo: Path, tmp_path: Path) -> None:
    (repo / "b").rename(repo / "c")
    (repo / "a").write_text("changed\n")
    (repo / "data").write_bytes(bytes(range(256)) * 10)
    change = await render_change(git, "main", None)
    assert change.patch == await git.diff("main") and change.stat == await git.diff("main", form="stat")
    assert change.files == ("a", "c", "data") and change.omitted == ()
    copy = tmp_path / "copy"
    git_in(tmp_path, "clone", "-q", str(repo), str(copy))
    subprocess.run(["git", "apply"], cwd=copy, input=change.patch.encode(), check=True)
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
    change = await render_change(git, first, head)
    assert {"-a", "+import os", "-b", "+evil", "+evil = '\ufffd'"} <= set(change.patch.splitlines())
    assert change.patch.count("GIT binary patch") == 1, "what is no text is none"
    assert change.omitted == ()


async def test_files_omitted_for_size_are_listed_also_if_attributes_hide_them(git: Git, repo: Path) -> None:
    (repo / ".gitattributes").write_text("* binary\n")
    for number in range(5):
        (repo / f"f{number}").write_text("x" * (3 << 20) + "\n")
    (repo / "z.py").write_text("evil\n")
    change = await render_change(git, "main", None)
    assert "GIT binary patch" not in change.patch and len(change.patch) <= MAX_PATCH_BYTES
    assert change.omitted == ("f3", "f4", "z.py")


async def test_a_file_of_300_gb_is_not_opened(git: Git, repo: Path) -> None:
    (repo / "b").unlink()  # what is new may be what is gone by another name: Git would read it to see
    (repo / ".gitattributes").write_text("* text\n")  # and this has Git read whatever it looks at
    with (repo / "huge").open("wb") as file:
        file.truncate(300 << 30)
    (repo / "a").write_text("changed\n")
    async with asyncio.timeout(60):
        change = await render_change(git, "main", None)
    assert change.omitted == ("huge",) and set(change.files) == {".gitattributes", "a", "b", "huge"}
    assert (
        "+changed" in change.patch and "huge" not in change.patch and "huge | too large to be compared" in change.stat
    )


async def test_the_committed_size_counts_before_and_after_the_change(git: Git, repo: Path) -> None:
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
        change = await render_change(git, "main", head)
        assert change.omitted == ("is large", "was [large]") and change.files == ("a", "is large", "was [large]")
        assert "+changed" in change.patch and "large" not in change.patch


async def test_a_cut_patch_ends_with_a_complete_file(git: Git, repo: Path) -> None:
    for number in range(5):
        (repo / f"f{number}").write_text(f"{number}" * 79 + "\n" + "x" * (3 << 20) + "\n")
    change = await render_change(git, "main", None)
    assert 6 << 20 < len(change.patch) <= MAX_PATCH_BYTES
    assert change.files == ("f0", "f1", "f2", "f3", "f4") and change.omitted == ("f3", "f4")
    assert change.patch.count("diff --git ") == 3 and change.patch.endswith("x" * 9 + "\n")


async def test_if_too_many_files_are_too_large_no_file_is_compared(
    git: Git, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "_MAX_EXCLUDED_FILES", 1)
    for name in ("one", "two"):
        with (repo / name).open("wb") as file:
            file.truncate(1 << 40)
    change = await render_change(git, "main", None)
    assert change.patch == "" and change.omitted == change.files == ("one", "two")


async def test_a_failure_is_raised_also_if_the_output_is_cut(git: Git) -> None:
    with pytest.raises(GitFailed, match="revision"):
        await git.run("diff", "nowhere", "--", most=100)
    assert len((await git.run("show", "--stat", "HEAD", most=10)).out) == 10
