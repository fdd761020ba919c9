"""What a project may want of its workspaces: set-up, ports, folders and names of its own; and disks that are full."""

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
def test_set_up_takes_effect(shared: Sandbox, workspace: str) -> None:
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
    made = json.loads(done.stdout)
    assert (made["id"], made["branch"]) == (f"ws-one-{workspace}", f"work/one-{workspace}-x")
    path = Path(made["workspacePath"])
    assert path.parent == (repo.parent / "trees of mine").resolve()
    assert (path / ".env").read_text() == "SECRET=1\n" == (path / "made-of-env").read_text()
    assert not (path / ".env").is_symlink() and (path / "conf" / "a").read_text() == "a\n"
    assert (path / "node_modules").is_symlink() and (path / "node_modules" / "m").read_text() == "m\n"
    assert (repo / ".worktrees" / f"one-{workspace}").resolve() == path
    assert shared.git("status", "--porcelain", cwd=path) == ""
    shared.until(lambda: shared.session(made["id"])["activity"] == "idle")
    other = _json(shared, "new", "[[wait]]", "--name", f"two-{workspace}", cwd=repo)
    blocks = [
        shared.ao(
            "sh", one["id"], "--", "sh", "-c", "echo $PORT $AO_PORT_0 $AO_PORT_1 $MODE $AO_SESSION"
        ).stdout.split()
        for one in (made, other)
    ]
    for block, one in zip(blocks, (made, other), strict=True):
        first = int(block[0])
        assert block == [str(first), str(first), str(first + 1), "testing", one["id"]]
    assert blocks[0][0] != blocks[1][0]
    assert shared.ao("path", made["id"]).stdout.strip() == str(path)
    shared.ao("stop", made["id"], other["id"])
    assert not path.exists() and (repo / "node_modules" / "m").exists()
    assert shared.git("status", "--porcelain", cwd=repo) == "?? agent-orchestrator.yaml"


@pytest.mark.parametrize("workspace", ["worktree", "clone"])
def test_what_only_we_hid_from_git_is_saved(shared: Sandbox, workspace: str) -> None:
    """An agent's folder or file in the place of a symlink of ours, and what it did to a copy that is named no more."""
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
    shared.until(lambda: '"value":[]' in shared.ao("config", "get", f"projects.{name}.copy", "--json", cwd=repo).stdout)
    shared.ao("stop", name, cwd=repo)
    assert not path.exists()
    shared.ao("restore", name, cwd=repo)
    assert (path / "data" / "mine").read_text() == "of the agent\n" and not (path / "data" / "shared").exists()
    assert (path / "settings.ini").read_text() == "a = 2\n" and (path / "plan.txt").read_text() == "one\ntwo\n"
    assert (path / "deps").is_symlink(), "what the user has ignored is not saved"
    shared.ao("stop", name, cwd=repo)
    assert "?? data/" in shared.git("status", "--porcelain", cwd=repo), "the user's own folder is shown as before"


def test_a_branch_that_is_in_use_is_refused_with_who_has_it(shared: Sandbox) -> None:
    config = "defaults: {agent: demo, runtime: process}\nprojects:\n  NAME: {path: .}\n"
    repos = [_repository(shared, name, config) for name in ("first", "second")]
    for repo in repos:
        shared.ao("new", "[[wait]]", "--name", "same", cwd=repo)
    refused = shared.ao("new", "[[wait]]", "--branch", "feature/same", cwd=repos[1], check=False)
    assert refused.returncode == 1 and "belongs to second-same already" in refused.stderr
    shared.git("checkout", "-q", "-b", "elsewhere", cwd=repos[1])
    refused = shared.ao("new", "[[wait]]", "--branch", "main", cwd=repos[1], check=False)
    assert refused.returncode == 1 and "main is what the change is to land on" in refused.stderr
    for repo in repos:
        shared.ao("stop", "same", cwd=repo)


def test_a_failing_post_create_shows_its_output_and_can_be_mended(shared: Sandbox) -> None:
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
    shared.until(lambda: shared.session("post-pc")["status"] == "idle")


def test_a_failed_session_can_be_stopped_without_a_trace(shared: Sandbox) -> None:
    config = "defaults: {agent: demo, runtime: process}\nprojects:\n  NAME: {path: ., postCreate: ['false']}\n"
    repo = _repository(shared, "trace", config)
    shared.ao("new", "x", "--name", "tr", cwd=repo, check=False)
    shared.ao("stop", "tr", cwd=repo)
    assert shared.session("trace-tr")["status"] == "stopped"
    assert shared.git("worktree", "list", cwd=repo).count("\n") == 0
    assert not (repo / ".worktrees" / "tr").exists()


def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path: Path) -> None:
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
