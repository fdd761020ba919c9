"""Workspace settings of a project: set-up, ports, folders and names; and full disks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {agent: demo, runtime: process}
projects:
  NAME:
    path: .
    sessionPrefix: ws
    branchPattern: "work/{{name}}-x"
    worktreeDir: ../trees of mine
    copy: [.env, conf]
    symlinks: [node_modules]
    postCreate: [echo preparing $MODE on $PORT, cp .env made-of-env]
    ports: {base: 4100, count: 2}
    env: {MODE: testing}
"""


def _repository(box: Sandbox, name: str, config: str | None = None) -> Path:
    first = box.repo
    try:
        return box.repository(name, config=config and config.replace("NAME", name))
    finally:
        box.repo = first


def _json(box: Sandbox, *argv: str, cwd: Path) -> Any:
    return json.loads(box.ao(argv[0], "--json", *argv[1:], cwd=cwd).stdout)


@pytest.mark.parametrize("workspace", ["worktree", "clone"])
def test_the_workspace_settings_take_effect(shared: Sandbox, workspace: str) -> None:
    name = f"setup-{workspace}"
    repo = _repository(shared, name, CONFIG)
    (repo / ".gitignore").write_text(".env\nconf\nnode_modules\nmade-of-env\n")
    shared.git("add", ".gitignore", cwd=repo)
    shared.git("commit", "-q", "-m", "ignore", cwd=repo)
    (repo / ".env").write_text("SECRET=1\n")
    (repo / "conf").mkdir()
    (repo / "conf" / "a").write_text("a\n")
    (repo / "node_modules").mkdir()
    (repo / "node_modules" / "m").write_text("m\n")
    done = shared.ao("new", "[[wait]]", "--json", "--name", f"one-{workspace}", "--workspace", workspace, cwd=repo)
    assert "preparing testing on 41" in done.stderr
    created = json.loads(done.stdout)
    assert (created["id"], created["branch"]) == (f"ws-one-{workspace}", f"work/one-{workspace}-x")
    path = Path(created["workspacePath"])
    assert path.parent == (repo.parent / "trees of mine").resolve()
    assert (path / ".env").read_text() == "SECRET=1\n" == (path / "made-of-env").read_text()
    assert not (path / ".env").is_symlink() and (path / "conf" / "a").read_text() == "a\n"
    assert (path / "node_modules").is_symlink() and (path / "node_modules" / "m").read_text() == "m\n"
    assert (repo / ".worktrees" / f"one-{workspace}").resolve() == path
    assert shared.git("status", "--porcelain", cwd=path) == ""
    shared.wait_until(lambda: shared.session(created["id"])["activity"] == "idle")
    other = _json(shared, "new", "[[wait]]", "--name", f"two-{workspace}", cwd=repo)
    blocks = [
        shared.ao(
            "sh", session["id"], "--", "sh", "-c", "echo $PORT $AO_PORT_0 $AO_PORT_1 $MODE $AO_SESSION"
        ).stdout.split()
        for session in (created, other)
    ]
    for block, session in zip(blocks, (created, other), strict=True):
        first = int(block[0])
        assert block == [str(first), str(first), str(first + 1), "testing", session["id"]]
    assert blocks[0][0] != blocks[1][0]
    assert shared.ao("path", created["id"]).stdout.strip() == str(path)
    shared.ao("stop", created["id"], other["id"])
    assert not path.exists() and (repo / "node_modules" / "m").exists()
    assert shared.git("status", "--porcelain", cwd=repo) == "?? agent-orchestrator.yaml"


@pytest.mark.parametrize("workspace", ["worktree", "clone"])
def test_files_that_only_we_hid_from_git_are_saved(shared: Sandbox, workspace: str) -> None:
    """Files that an agent put in place of our symlinks, and changes of a copy that is no longer configured."""
    name, config = f"hid-{workspace}", "defaults: {agent: demo, runtime: process}\nprojects:\n  NAME:\n    path: .\n"
    shares = "    symlinks: [data, settings.ini, deps]\n"
    repo = _repository(shared, name, f"{config}{shares}    copy: [plan.txt]\n")
    (repo / ".gitignore").write_text("deps/\n")
    shared.git("add", ".gitignore", cwd=repo)
    shared.git("commit", "-q", "-m", "ignore", cwd=repo)
    for folder in ("data", "deps"):
        (repo / folder).mkdir()
        (repo / folder / "shared").write_text("ours\n")
    (repo / "settings.ini").write_text("a = 1\n")
    (repo / "plan.txt").write_text("one\n")
    path = Path(_json(shared, "new", "[[wait]]", "--name", name, "--workspace", workspace, cwd=repo)["workspacePath"])
    assert shared.git("status", "--porcelain", cwd=path) == ""
    for folder in ("data", "deps"):
        (path / folder).unlink()
        (path / folder).mkdir()
        (path / folder / "mine").write_text("of the agent\n")
    (path / "settings.ini").unlink()
    (path / "settings.ini").write_text("a = 2\n")
    (path / "plan.txt").write_text("one\ntwo\n")
    assert shared.git("status", "--porcelain", cwd=path) == "?? data/"
    (repo / "agent-orchestrator.yaml").write_text((config + shares).replace("NAME", name))
    shared.wait_until(
        lambda: '"value":[]' in shared.ao("config", "get", f"projects.{name}.copy", "--json", cwd=repo).stdout
    )
    shared.ao("stop", name, cwd=repo)
    assert not path.exists()
    shared.ao("restore", name, cwd=repo)
    assert (path / "data" / "mine").read_text() == "of the agent\n" and not (path / "data" / "shared").exists()
    assert (path / "settings.ini").read_text() == "a = 2\n" and (path / "plan.txt").read_text() == "one\ntwo\n"
    assert (path / "deps").is_symlink(), "ignored files are not saved"
    shared.ao("stop", name, cwd=repo)
    assert "?? data/" in shared.git("status", "--porcelain", cwd=repo), (
        "the folder of the main checkout is shown as before"
    )


def test_a_branch_in_use_is_refused_with_its_owner(shared: Sandbox) -> None:
    config = "defaults: {agent: demo, runtime: process}\nprojects:\n  NAME: {path: .}\n"
    repos = [_repository(shared, name, config) for name in ("first", "second")]
    for repo in repos:
        shared.ao("new", "[[wait]]", "--name", "same", cwd=repo)
    result = shared.ao("new", "[[wait]]", "--branch", "feature/same", cwd=repos[1], check=False)
    assert result.returncode == 1 and "belongs to second-same already" in result.stderr
    shared.git("checkout", "-q", "-b", "elsewhere", cwd=repos[1])
    result = shared.ao("new", "[[wait]]", "--branch", "main", cwd=repos[1], check=False)
    assert result.returncode == 1 and "main is what the change is to land on" in result.stderr
    for repo in repos:
        shared.ao("stop", "same", cwd=repo)


def test_a_failing_post_create_shows_its_output_and_can_be_fixed(shared: Sandbox) -> None:
    config = (
        "defaults: {agent: demo, runtime: process}\nprojects:\n  NAME: {path: ., postCreate: [echo step one, CMD]}\n"
    )
    repo = _repository(shared, "post", config.replace("CMD", "sh -c 'echo it is broken >&2; exit 3'"))
    done = shared.ao("new", "[[say: x]]", "--name", "pc", cwd=repo, check=False)
    assert done.returncode == 1
    assert "step one" in done.stderr and "it is broken" in done.stderr and "postCreate" in done.stderr
    failed = shared.session("post-pc")
    assert (failed["status"], failed["pid"]) == ("failed", None)
    (repo / "agent-orchestrator.yaml").write_text(config.replace("NAME", "post").replace("CMD", "echo fine"))
    assert shared.ao("restore", "pc", cwd=repo).returncode == 0
    shared.wait_until(lambda: shared.session("post-pc")["status"] == "idle")


def test_stopping_a_failed_session_leaves_nothing_behind(shared: Sandbox) -> None:
    config = "defaults: {agent: demo, runtime: process}\nprojects:\n  NAME: {path: ., postCreate: ['false']}\n"
    repo = _repository(shared, "trace", config)
    shared.ao("new", "x", "--name", "tr", cwd=repo, check=False)
    shared.ao("stop", "tr", cwd=repo)
    assert shared.session("trace-tr")["status"] == "stopped"
    assert shared.git("worktree", "list", cwd=repo).count("\n") == 0
    assert not (repo / ".worktrees" / "tr").exists()


def test_a_full_disk_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if os.getuid() or not shutil.which("mount"):
        pytest.skip("a small disk cannot be made here")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "ao-test", str(small)], capture_output=True).returncode:
        pytest.skip("a small disk cannot be made here")
    try:
        with Sandbox(tmp_path, "process") as box:
            repo = box.repository(
                config=f"defaults: {{agent: demo, runtime: process}}\nprojects:\n  app: {{path: ., worktreeDir: {small}}}\n"
            )
            (repo / "large").write_bytes(os.urandom(3 << 20))
            box.git("add", "large")
            box.git("commit", "-q", "-m", "large")
            box.start()
            done = box.ao("new", "[[wait]]", "--name", "full", check=False)
            assert done.returncode == 1 and "Traceback" not in done.stderr
            assert "space" in done.stderr.lower(), done.stderr
            box.git("rm", "-q", "large")
            box.git("commit", "-q", "-m", "small again")
            box.ao("stop", "full")
            assert list(small.iterdir()) == []
            assert box.json("new", "[[wait]]", "--name", "fits")["status"] in ("starting", "working", "idle")
            box.ao("stop", "fits")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
