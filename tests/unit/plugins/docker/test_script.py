"""The start script and mounts of a container."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.runtimes.docker.engine import Engine, _engine
from agent_orchestrator.plugins.runtimes.docker.images import _tag
from agent_orchestrator.plugins.runtimes.docker.mounts import mount_option, private_mounts, workspace_mounts
from agent_orchestrator.plugins.runtimes.docker.network import network_setup
from agent_orchestrator.plugins.runtimes.docker.script import script
from agent_orchestrator.protocols import Container, Mount

REPORT_PROGRAM = (
    "import json, os, sys; print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items() if k != 'LC_CTYPE'}]))"
)


def test_the_script_hands_over_arguments_and_variables_as_they_are(tmp_path: Path) -> None:
    hostile = ["", "it's", '"$HOME" $(id) `id` \\', "line\nline", "-n", "*", "ünï 🦊"]
    env = {"A_B": "x'\n$y;", "EMPTY": "", "not a name": "odd", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    started = tmp_path / "it's started"
    text = script([sys.executable, "-I", "-c", REPORT_PROGRAM, *hostile], env, started=started, size=(80, 24))
    file = tmp_path / "script.sh"
    file.write_text(text)
    image_env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "HOSTNAME": "box", "FROM_THE_IMAGE": "stays"}
    done = subprocess.run(["sh", str(file)], env=image_env, capture_output=True, text=True, check=True)
    arguments, variables = json.loads(done.stdout)
    assert arguments == hostile and started.exists()
    assert variables == {**env, "FROM_THE_IMAGE": "stays"}


def test_paths_with_commas_and_quotes_are_one_field_of_a_mount() -> None:
    path = Path('/a,b/"c"')
    assert mount_option(Mount(path, path)) == 'type=bind,"source=/a,b/""c""","target=/a,b/""c""",readonly'
    assert mount_option(Mount(Path("/a"), Path("/b"), writable=True)) == "type=bind,source=/a,target=/b"


def _git(folder: Path, *argv: str) -> None:
    identity = ("-c", "user.name=P", "-c", "user.email=p@example.invalid")
    subprocess.run(["git", *identity, *argv], cwd=folder, check=True, capture_output=True)


def test_a_worktree_shows_its_repository_with_what_is_run_read_only(tmp_path: Path) -> None:
    repo, work = tmp_path / "repo", tmp_path / "work"
    repo.mkdir()
    _git(repo, "init", "-q")
    _git(repo, "commit", "-q", "--allow-empty", "-m", "start")
    _git(repo, "worktree", "add", "-q", "-b", "side", str(work))
    mounts = {mount.target: mount.writable for mount in workspace_mounts(work)}
    layout = find_layout(work)
    assert layout is not None
    common, own = repo / ".git", layout.git_dir
    assert {path for path, writable in mounts.items() if writable} == {work, common, own}
    read_only = {work / ".git", common / "config", common / "hooks", common / "HEAD", own.parent, own / "commondir"}
    assert read_only | {own / "gitdir"} <= {path for path, writable in mounts.items() if not writable}
    assert repo not in mounts
    _git(repo, "config", "extensions.worktreeConfig", "true")
    assert Mount(own / "config.worktree", own / "config.worktree") in workspace_mounts(work)


def test_a_repository_of_its_own_is_shown_with_the_objects_it_borrows(tmp_path: Path) -> None:
    repo, work = tmp_path / "repo", tmp_path / "work"
    repo.mkdir()
    _git(repo, "init", "-q")
    _git(repo, "commit", "-q", "--allow-empty", "-m", "start")
    _git(tmp_path, "clone", "-q", "--shared", "--template=", str(repo), str(work))
    mounts = {mount.target: mount.writable for mount in workspace_mounts(work)}
    assert mounts == {
        work: True,
        work / ".git": True,
        **{work / ".git" / name: False for name in ("config", "commondir", "hooks", "modules", "objects/info")},
        repo / ".git" / "objects": False,
    }


def test_of_the_private_folder_only_what_the_agent_writes_is_writable(tmp_path: Path) -> None:
    for name in ("task.md", "inbox.jsonl", "spool.1.jsonl", "spool.2.jsonl", "hooks-1.jsonl", "exit.1.json"):
        (tmp_path / name).touch()
    for name in ("container", "hooks", "aider"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("/etc")
    mounts = {mount.target.name for mount in private_mounts(tmp_path, tmp_path / "spool.2.jsonl") if mount.writable}
    assert mounts == {"spool.2.jsonl", "hooks-1.jsonl", "container", "aider"}
    assert Mount(tmp_path, tmp_path) in private_mounts(tmp_path, None)


def test_an_allowlist_that_cannot_be_held_is_refused(tmp_path: Path) -> None:
    container = Container(image="box", network="allowlist", daemon="http://127.0.0.1:8700")
    with pytest.raises(Missing, match="virtual machine"):
        network_setup(container, Engine("docker", "28", desktop=True), tmp_path, tmp_path / "log", "socat")
    with pytest.raises(Missing, match="socat, python3, node in the image box"):
        network_setup(container, Engine("docker", "28"), tmp_path, tmp_path / "log", "")
    for relay in ("socat", "python3", "node"):
        mounts = network_setup(container, Engine("docker", "28"), tmp_path, tmp_path / "log", relay)
        assert mounts.options == ("--network", "none") and "8700" in mounts.script_lines[-1] + mounts.script_lines[0]
        assert mounts.rules[:3] == (str(tmp_path), str(tmp_path / "log"), "127.0.0.1:8700")


def test_the_owner_of_files_is_the_user_whatever_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr("os.getgid", lambda: 100)
    assert Engine("docker", "20").user_options() == ("--user", "1000:100")
    assert Engine("docker", "20", rootless=True).user_options() == ("--user", "0:0")
    assert Engine("docker", "20", remapped=True).user_options() == ("--userns", "host", "--user", "1000:100")
    assert Engine("podman", "4", rootless=True).user_options() == ("--userns", "keep-id", "--user", "1000:100")


def test_engines_are_known_by_their_own_words() -> None:
    docker = {"ServerVersion": "20.10", "SecurityOptions": ["name=rootless"], "OperatingSystem": "Debian"}
    assert _engine("docker", docker) == Engine("docker", "20.10", rootless=True)
    assert _engine("docker", {"ServerVersion": "28", "OperatingSystem": "Docker Desktop"}) == Engine(
        "docker", "28", desktop=True
    )
    podman = {"host": {"security": {"rootless": True}}, "version": {"Version": "4.3.1"}}
    assert _engine("podman", podman) == Engine("podman", "4.3.1", rootless=True)
    assert _engine("docker", {"ServerErrors": ["no"]}) is None


def test_an_image_is_named_by_what_it_is_made_of(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM debian\n")
    first = _tag(Container(dockerfile=file))
    file.write_text("FROM debian:12\n")
    assert _tag(Container(dockerfile=file)) != first
    assert _tag(Container(agent="codex")) != _tag(Container(agent="gemini"))
    with pytest.raises(Missing, match="of agent cursor"):
        _tag(Container(agent="cursor"))
