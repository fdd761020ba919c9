"""The suite that every Workspace plugin must pass. To run it on yours:

    from agent_orchestrator.testing.contracts.workspace import WorkspaceContract

    class TestMyWorkspace(WorkspaceContract):
        @pytest.fixture
        def workspace(self) -> Workspace:
            return MyWorkspace({}, LocalHost())

It uses real Git; the suite itself runs it with `git_in`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.protocols import Workspace, WorkspaceSpec


def git_in(folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> str:
    """Run Git in a folder and return its output; raise `AssertionError` if it fails."""
    environment = {**os.environ, **(env or {})}
    completed = subprocess.run(
        ["git", "-C", str(folder), *argv], capture_output=True, text=True, check=False, env=environment
    )
    assert completed.returncode == 0, f"git {' '.join(argv)}: {completed.stderr}"
    return completed.stdout.strip()


def ignore_line(_: str) -> None:
    """Ignore a line of a report."""


class WorkspaceContract:
    """Subclass it and define the fixture `workspace`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def workspace(self) -> Workspace:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `workspace`")

    @pytest.fixture
    def repo(self, tmp_path: Path) -> Path:
        """The user's repository: one commit on `main`, and uncommitted changes that must not be touched."""
        repo = tmp_path / "repo"
        (repo / "src").mkdir(parents=True)
        git_in(repo, "init", "-q", "-b", "main")
        (repo / "README").write_text("hello\n")
        (repo / "src" / "main.py").write_text("print('hello')\n")
        git_in(repo, "add", "-A")
        git_in(repo, "commit", "-qm", "first")
        (repo / "README").write_text("changed by the user\n")
        (repo / "untracked").write_text("the user's own\n")
        return repo

    @pytest.fixture
    def spec(self, repo: Path, tmp_path: Path) -> WorkspaceSpec:
        """The specification of a workspace that does not exist yet."""
        return spec_for(repo, tmp_path, "fix-login")

    async def test_create_makes_a_folder_on_a_new_branch(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        before = git_in(spec.repo, "status", "--porcelain=v2", "--branch")
        info = await workspace.create(spec, ignore_line)
        head = git_in(spec.repo, "rev-parse", "main")
        assert (info.path, info.branch, info.base, info.base_commit, info.head) == (
            spec.path,
            spec.branch,
            "main",
            head,
            head,
        )
        assert git_in(spec.path, "symbolic-ref", "HEAD") == f"refs/heads/{spec.branch}"
        assert (spec.path / "README").read_text() == "hello\n" and not (spec.path / "untracked").exists()
        assert git_in(spec.path, "status", "--porcelain") == ""
        assert (info.git_dir / "HEAD").is_file() and Path(
            git_in(spec.path, "rev-parse", "--absolute-git-dir")
        ) == info.git_dir
        assert spec.link and spec.link.is_symlink() and spec.link.resolve() == spec.path.resolve()
        assert git_in(spec.repo, "status", "--porcelain=v2", "--branch") == before, "the user's checkout is as it was"

    async def test_remove_keeps_only_the_branch(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        await workspace.create(spec, ignore_line)
        (spec.path / "new").write_text("x")
        git_in(spec.path, "add", "new")
        git_in(spec.path, "commit", "-qm", "work")
        commit = git_in(spec.path, "rev-parse", "HEAD")
        await workspace.remove(spec)
        assert not spec.path.exists() and spec.link and not os.path.lexists(spec.link)
        assert git_in(spec.repo, "rev-parse", spec.branch) == commit
        assert len(git_in(spec.repo, "worktree", "list").splitlines()) == 1
        await workspace.remove(spec)

    async def test_an_existing_branch_is_continued_only_on_request(
        self, workspace: Workspace, spec: WorkspaceSpec, tmp_path: Path
    ) -> None:
        git_in(spec.repo, "branch", spec.branch)
        with pytest.raises(Conflict, match="exists already"):
            await workspace.create(spec, ignore_line)
        info = await workspace.create(replace(spec, existing=True), ignore_line)
        assert info.head == git_in(spec.repo, "rev-parse", spec.branch)
        with pytest.raises(NotFound, match="feature/nope"):
            await workspace.create(replace(spec_for(spec.repo, tmp_path, "nope"), existing=True), ignore_line)

    async def test_a_second_create_returns_the_same_workspace(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        first = await workspace.create(spec, ignore_line)
        (spec.path / "work").write_text("kept\n")
        assert await workspace.create(spec, ignore_line) == first
        assert (spec.path / "work").read_text() == "kept\n"

    async def test_a_deleted_folder_is_created_again(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        first = await workspace.create(spec, ignore_line)
        shutil.rmtree(spec.path)
        again = await workspace.create(replace(spec, existing=True), ignore_line)
        assert (again.branch, again.head) == (first.branch, first.head)
        shutil.rmtree(spec.path)
        await workspace.remove(spec)
        assert spec.link and not os.path.lexists(spec.link)
        assert git_in(spec.repo, "rev-parse", spec.branch) == first.head
        assert len(git_in(spec.repo, "worktree", "list").splitlines()) == 1

    async def test_abandon_keeps_a_complete_workspace_and_foreign_folders(
        self, workspace: Workspace, spec: WorkspaceSpec
    ) -> None:
        spec.path.mkdir(parents=True)
        (spec.path / "foreign").write_text("somebody's own\n")
        assert await workspace.abandon(spec) is None
        assert (spec.path / "foreign").exists()
        shutil.rmtree(spec.path)
        created = await workspace.create(spec, ignore_line)
        (spec.path / "work").write_text("kept\n")
        assert await workspace.abandon(spec) == created
        assert (spec.path / "work").read_text() == "kept\n"

    async def test_twenty_workspaces_are_created_concurrently(
        self, workspace: Workspace, repo: Path, tmp_path: Path
    ) -> None:
        specs = [spec_for(repo, tmp_path, f"task-{number}") for number in range(20)]
        infos = await asyncio.gather(*(workspace.create(spec, ignore_line) for spec in specs))
        assert len({info.git_dir for info in infos}) == 20
        assert all(git_in(spec.path, "status", "--porcelain", "--branch") == f"## {spec.branch}" for spec in specs)
        await asyncio.gather(*(workspace.remove(spec) for spec in specs))
        assert not any(spec.path.exists() for spec in specs)

    @pytest.mark.parametrize("branch", ["-rf", "a b", "a..b", "a/", "x.lock", "", "HEAD", "a~1", "@{x}", ".hidden/x"])
    async def test_invalid_branch_names_are_refused(
        self, workspace: Workspace, spec: WorkspaceSpec, branch: str
    ) -> None:
        with pytest.raises(UsageError, match="not a name for a branch"):
            await workspace.create(replace(spec, branch=branch), ignore_line)
        assert not spec.path.exists()

    async def test_unusual_valid_names_are_accepted(self, workspace: Workspace, repo: Path, tmp_path: Path) -> None:
        spec = replace(spec_for(repo, tmp_path, "ein Übel (日本)"), branch="feature/übel-日本/deep")
        info = await workspace.create(spec, ignore_line)
        assert git_in(info.path, "branch", "--show-current") == "feature/übel-日本/deep"
        await workspace.remove(spec)
        assert not spec.path.exists()

    async def test_a_branch_below_another_branch_is_refused(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        git_in(spec.repo, "branch", "feature")
        with pytest.raises(Conflict, match="cannot be beside branch feature"):
            await workspace.create(spec, ignore_line)

    async def test_a_missing_base_is_refused_with_a_suggestion(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        git_in(spec.repo, "branch", "develop")
        with pytest.raises(NotFound, match="has no base 'develp'") as caught:
            await workspace.create(replace(spec, base="develp"), ignore_line)
        assert "develop" in caught.value.remedy

    async def test_a_folder_without_a_repository_is_refused(
        self, workspace: Workspace, spec: WorkspaceSpec, tmp_path: Path
    ) -> None:
        (tmp_path / "plain").mkdir()
        for repo in (tmp_path / "plain", tmp_path / "nowhere"):
            with pytest.raises(NotFound) as caught:
                await workspace.create(replace(spec, repo=repo, link=None), ignore_line)
            assert caught.value.remedy

    async def test_a_repository_without_a_commit_is_refused(
        self, workspace: Workspace, spec: WorkspaceSpec, tmp_path: Path
    ) -> None:
        (tmp_path / "empty").mkdir()
        git_in(tmp_path / "empty", "init", "-q", "-b", "main")
        with pytest.raises(Conflict, match="no commit yet"):
            await workspace.create(replace(spec, repo=tmp_path / "empty", link=None), ignore_line)
        assert not spec.path.exists()

    async def test_an_existing_folder_is_not_overwritten(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        spec.path.mkdir(parents=True)
        (spec.path / "mine").write_text("not yours\n")
        with pytest.raises(Conflict, match="in the way"):
            await workspace.create(spec, ignore_line)
        assert (spec.path / "mine").read_text() == "not yours\n"
        assert git_in(spec.repo, "branch", "--list", spec.branch) == ""

    async def test_a_workspace_of_a_bare_repository(
        self, workspace: Workspace, spec: WorkspaceSpec, tmp_path: Path
    ) -> None:
        git_in(tmp_path, "clone", "-q", "--bare", str(spec.repo), "bare.git")
        info = await workspace.create(replace(spec, repo=tmp_path / "bare.git", link=None, copy=(".env",)), ignore_line)
        assert (spec.path / "README").read_text() == "hello\n"
        assert any("bare" in note for note in info.notes)

    async def test_listed_files_are_copied_or_linked(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        (spec.repo / ".env").write_text("SECRET=1\n")
        (spec.repo / ".env").chmod(0o600)
        (spec.repo / "conf" / "local").mkdir(parents=True)
        (spec.repo / "conf" / "local" / "a.json").write_text("{}")
        (spec.repo / "conf" / "out").symlink_to("/etc")
        (spec.repo / "node_modules").mkdir()
        (spec.repo / ".git" / "info" / "exclude").write_text("# mine\nnode_modules/")
        sharing_spec = replace(
            spec, copy=(".env", "conf", "README", "gone*"), symlinks=("node_modules", "vendor", "src")
        )
        info = await workspace.create(sharing_spec, ignore_line)
        assert (spec.path / ".env").read_text() == "SECRET=1\n" and (spec.path / ".env").stat().st_mode & 0o777 == 0o600
        assert (spec.path / "conf" / "local" / "a.json").read_text() == "{}"
        assert not os.path.lexists(spec.path / "conf" / "out")
        assert (spec.path / "README").read_text() == "hello\n", "what the branch has itself stays"
        assert (spec.path / "node_modules").resolve() == (spec.repo / "node_modules").resolve()
        assert git_in(spec.path, "status", "--porcelain") == ""
        assert (spec.repo / ".git" / "info" / "exclude").read_text().startswith("# mine\nnode_modules/\n")
        for name in ("gone*", "vendor", "src", "conf/out"):
            assert any(name in note for note in info.notes), name

    @pytest.mark.parametrize("name", ["../other", "/etc/passwd", ".git/config", "a/../../b"])
    async def test_paths_outside_the_repository_are_refused(
        self, workspace: Workspace, spec: WorkspaceSpec, name: str
    ) -> None:
        for outside_spec in (replace(spec, copy=(name,)), replace(spec, symlinks=(name,))):
            with pytest.raises(UsageError, match="not a path inside"):
                await workspace.create(outside_spec, ignore_line)
            assert not spec.path.exists()

    async def test_set_up_commands_run_in_the_workspace(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        lines: list[str] = []
        set_up_spec = replace(spec, post_create=("echo from $PLACE", "pwd > out.tmp"), env={"PLACE": "here"})
        await workspace.create(set_up_spec, lines.append)
        assert lines == ["$ echo from $PLACE", "from here", "$ pwd > out.tmp"]
        assert Path((spec.path / "out.tmp").read_text().strip()) == spec.path

    async def test_a_failing_set_up_command_leaves_nothing_behind(
        self, workspace: Workspace, spec: WorkspaceSpec
    ) -> None:
        failing_spec = replace(spec, post_create=("echo the reason >&2; exit 7", "touch never"))
        with pytest.raises(AoError, match=r"exit 7' ended with 7: the reason"):
            await workspace.create(failing_spec, ignore_line)
        self.assert_nothing_left(spec)
        await workspace.create(spec, ignore_line)

    async def test_a_canceled_create_leaves_nothing_behind(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        started = asyncio.Event()
        slow_spec = replace(spec, post_create=("echo on; sleep 60",))
        task = asyncio.create_task(workspace.create(slow_spec, lambda line: started.set() if line == "on" else None))
        await asyncio.wait_for(started.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self.assert_nothing_left(spec)

    async def test_git_configuration_of_one_workspace_does_not_affect_others(
        self, workspace: Workspace, repo: Path, tmp_path: Path
    ) -> None:
        hook = repo / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho ran >> hook-ran\n")
        hook.chmod(0o755)
        first_spec, second_spec = spec_for(repo, tmp_path, "one"), spec_for(repo, tmp_path, "two")
        first, second = (
            await workspace.create(first_spec, ignore_line),
            await workspace.create(second_spec, ignore_line),
        )
        git_in(first_spec.path, "config", "user.name", "Somebody Else", env=first.git_env)
        hooks = Path(git_in(first_spec.path, "rev-parse", "--git-path", "hooks", env=first.git_env))
        (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
        git_in(second_spec.path, "commit", "-q", "--allow-empty", "-m", "mine", env=second.git_env)
        assert git_in(second_spec.path, "log", "-1", "--format=%an") == git_in(
            tmp_path, "config", "--global", "user.name"
        )
        assert (second_spec.path / "hook-ran").read_text() == "ran\n", "the user's own hook runs"
        assert hook.read_text() == "#!/bin/sh\necho ran >> hook-ran\n"
        assert git_in(second_spec.path, "config", "gc.auto", env=second.git_env) == "0"
        assert git_in(second_spec.path, "config", "safe.bareRepository", env=second.git_env) == "explicit"

    async def test_commit_signing_is_switched_off_with_a_note(self, workspace: Workspace, spec: WorkspaceSpec) -> None:
        git_in(spec.repo, "config", "commit.gpgSign", "true")
        git_in(spec.repo, "config", "gpg.program", "false")
        info = await workspace.create(spec, ignore_line)
        assert any("signing is switched off" in note for note in info.notes)
        git_in(spec.path, "commit", "-q", "--allow-empty", "-m", "unsigned", env=info.git_env)

    def assert_nothing_left(self, spec: WorkspaceSpec) -> None:
        """Assert that there is neither folder, symlink, branch nor registration."""
        assert not os.path.lexists(spec.path) and spec.link and not os.path.lexists(spec.link)
        assert git_in(spec.repo, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
        assert len(git_in(spec.repo, "worktree", "list").splitlines()) == 1


def spec_for(repo: Path, root: Path, name: str) -> WorkspaceSpec:
    """Return the specification of a workspace for a session of this name."""
    return WorkspaceSpec(
        session=f"app-{name}",
        repo=repo,
        path=root / "worktrees" / "app" / name,
        link=repo / ".worktrees" / name,
        private=root / "sessions" / f"app-{name}",
        branch=f"feature/{name}",
        base="main",
    )
