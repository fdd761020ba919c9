"""An ordinary user with access to the engine: files of agents belong to the user, who has a name in the container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.engine import IMAGE, ContainerEngine

USER = 12345
PYTHON = "/usr/bin/python3"
PROGRAM = f"""
import asyncio, json, subprocess, sys
from pathlib import Path
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes.docker.runtime import DockerRuntime
from agent_orchestrator.protocols import Container, LaunchSpec

root = Path(sys.argv[1])
identity = {{"GIT_AUTHOR_NAME": "P", "GIT_AUTHOR_EMAIL": "p@x", "GIT_COMMITTER_NAME": "P", "GIT_COMMITTER_EMAIL": "p@x"}}
def git(*argv):
    subprocess.run(["git", *argv], cwd=root / "repo", check=True, env={{**identity, "PATH": "/usr/bin:/bin", "HOME": str(root)}})
(root / "repo").mkdir()
git("init", "-q")
git("commit", "-q", "--allow-empty", "-m", "start")
git("worktree", "add", "-q", "-b", "side", str(root / "work"))
private = root / "home" / "sessions" / "s"
command = "id -u >id; whoami >name; echo $HOME >home; touch ~/kept; git commit -q --allow-empty -m inside && git log -1 --format=%s >log"
async def main():
    runtime = DockerRuntime({{"home": str(root / "home")}}, LocalHost())
    env = {{**identity, "HOME": str(private / "container" / "home")}}
    spec = LaunchSpec("s", 1, ("sh", "-c", command), root / "work", env, private, private / "log", container=Container(image="{IMAGE}"))
    handle = await runtime.launch(spec)
    gone = await runtime.ended(handle)
    await runtime.discard(handle)
    return [gone.exit.code, (private / "log").read_text(), handle.address.get("inside", "")]
print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture
def root(docker: ContainerEngine) -> Iterator[Path]:
    """A folder of the user, who may use the engine's socket."""
    if not os.access(PYTHON, os.X_OK):
        pytest.skip(f"there is no {PYTHON} that every user can run")
    if not Path(os.devnull).stat().st_mode & 0o002:
        pytest.skip(f"{os.devnull} is not open to every user here")
    folder = Path(tempfile.mkdtemp(prefix="ao-user-"))
    os.chown(folder, USER, USER)
    docker.folder.chmod(0o755)
    (docker.folder / "docker.sock").chmod(0o666)
    yield folder
    shutil.rmtree(folder)


def test_files_made_in_a_container_belong_to_the_user(docker: ContainerEngine, root: Path) -> None:
    source = docker.folder / "src"  # the original may be in a folder that the user cannot read
    shutil.copytree(Path(__file__).parents[2] / "src", source, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    env = {
        **docker.env,
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    as_user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    completed = subprocess.run(
        [*as_user, PYTHON, "-c", PROGRAM, str(root)], env=env, cwd=root, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    code, log, _ = json.loads(completed.stdout)
    assert code == 0, log
    work = root / "work"
    results = {name: (work / name).read_text().strip() for name in ("id", "name", "home", "log")}
    home = root / "home" / "sessions" / "s" / "container" / "home"
    assert results == {"id": str(USER), "name": "agent", "home": str(home), "log": "inside"}
    files = [path for path in root.rglob("*") if not path.is_symlink()]
    assert {path.stat().st_uid for path in files} == {USER}
    assert (home / "kept").exists() and docker.containers() == []
