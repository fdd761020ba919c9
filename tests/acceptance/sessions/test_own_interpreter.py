"""A project's agents, checks, set-up and fixes find the project's programs, never those of the interpreter that runs us.

The daemon is started as people do who followed an earlier quickstart: with our virtual environment first in the PATH of the terminal,
activated, and in the profile of the login shell.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.cluster.test_nodes import CONFIG as NODES
from tests.acceptance.cluster.test_nodes import Cluster

OURS = Path(sys.prefix) / "bin"
NAMES = ("python", "python3", "pytest", "mypy", "ruff", "lint-imports", "pip", "ao", "agent-orchestrator")
SECRET = "DEPLOY_TOKEN"
VARIABLES = (
    SECRET,
    "VIRTUAL_ENV",
    "VIRTUAL_ENV_PROMPT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "PYTHONUNBUFFERED",
)
LOOK = f"""\
{{
for name in {" ".join(NAMES)}; do echo "$name=$(command -v $name)"; done
for name in {" ".join(VARIABLES)}; do printenv $name >/dev/null && echo "$name=$(printenv $name)"; done
echo "PATH=$PATH"
}} >> "$(dirname "$0")/seen-$1"
"""
CONFIG = """\
defaults: {{agent: demo, runtime: process, agentConfig: {{mode: {mode}}}}}
postCreate: ["sh {look} set-up"]
ci:
  look: sh {look} check
  borrowed: {borrowed} --version
"""

pytestmark = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="run by a Python that is nobody's environment")


def without_ours() -> str:
    """A PATH with Git and the machine's own programs."""
    git = shutil.which("git")
    assert git
    return os.pathsep.join(dict.fromkeys([str(Path(git).parent), "/usr/bin", "/bin"]))


def borrowed() -> str:
    """A tool that only our environment has."""
    return next(name for name in NAMES if (OURS / name).exists() and not shutil.which(name, path=without_ours()))


@pytest.fixture(params=["tui", "headless"])
def box(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    env = {"PATH": f"{OURS}:{without_ours()}", "VIRTUAL_ENV": sys.prefix, "VIRTUAL_ENV_PROMPT": "ours", SECRET: "x"}
    with Sandbox(tmp_path, "process", env) as box:
        for name in set(VARIABLES) - set(env):  # what this machine sets is nobody's doing
            box.env.pop(name, None)
        look = tmp_path / "look.sh"
        look.write_text(LOOK)
        profile = f'export PATH="{OURS}:$PATH" VIRTUAL_ENV={sys.prefix}\n'
        (box.user_home / ".profile").write_text(profile)
        box.repository(config=CONFIG.format(look=look, mode=request.param, borrowed=borrowed()))
        box.start()
        yield box


def seen(box: Sandbox, where: str) -> dict[str, str]:
    """What the script found where it ran."""
    file = box.folder / f"seen-{where}"
    box.until(lambda: file.exists() and "PATH=" in file.read_text(), f"the look of the {where}")
    return dict(line.partition("=")[::2] for line in file.read_text().splitlines())


def test_nothing_of_ours_is_found_but_ao(box: Sandbox) -> None:
    look = box.folder / "look.sh"
    box.ao("new", "--name", "x", f"[[sh: sh {look} agent]] [[write: a|b]] [[commit: a]] [[done: it]]")
    box.ao("sh", "app-x", "--", "sh", str(look), "sh")
    box.ao("fix", "--dry-run", "--command", f"sh {look} fix", check=False)
    for where in ("set-up", "agent", "check", "sh", "fix"):
        found = seen(box, where)
        folder = box.home.path / "bin"
        for name in NAMES:
            own = shutil.which(name, path=without_ours())
            expected = str(folder / name) if name in ("ao", "agent-orchestrator") else own or ""
            assert found[name] == expected, where
        assert str(OURS) not in found["PATH"].split(":"), where
        # A person's shell has what its terminal has.
        assert not [name for name in VARIABLES if name in found and (where, name) != ("sh", SECRET)], where


def test_a_check_is_not_green_thanks_to_our_tools(box: Sandbox) -> None:
    box.ao("new", "--name", "x", "[[write: a|b]] [[commit: a]] [[done: it]]")

    def states() -> dict[str, str]:
        pull = box.session("app-x")["pr"]
        return {one["name"]: one["state"] for one in pull["checks"]} if pull else {}

    box.until(lambda: set(states().values()) - {"queued", "running"} and states().get("look") == "success", "the check")
    box.until(lambda: states()["borrowed"] not in ("queued", "running"), "the other check")
    assert states()["borrowed"] != "success"


def test_ao_works_where_only_it_is_found(box: Sandbox) -> None:
    box.ao("new", "--name", "x", "[[sh: ao status --json > seen-status]] [[done: it]]")
    file = Path(box.session("app-x")["workspacePath"]) / "seen-status"
    box.until(lambda: file.exists() and file.read_text().endswith("}\n"), "what the agent asked")
    assert [one["name"] for one in json.loads(file.read_text())["sessions"]] == ["x"]


def test_doctor_tells_of_the_old_line(box: Sandbox) -> None:
    [line] = [one for one in box.json("doctor")["checks"] if one["name"] == "PATH"]
    assert line["state"] == "warning" and str(OURS) in line["detail"] and "login shell" in line["detail"]
    assert f'export PATH="{sys.prefix}/ao/bin:$PATH"' in line["remedy"] or f"{box.home.path}/bin" in line["remedy"]
    (box.user_home / ".profile").unlink()
    box.ao("shutdown")
    [line] = [one for one in box.json("doctor")["checks"] if one["name"] == "PATH"]
    assert "this terminal" in line["detail"]
    box.env["PATH"] = without_ours()
    assert not [one for one in box.json("doctor")["checks"] if one["name"] == "PATH"]


def test_what_was_activated_where_the_daemon_was_started_is_nobodys(tmp_path: Path) -> None:
    """Another project's environment, of Python or of Node."""
    theirs, modules, tools = tmp_path / "theirs/.venv", tmp_path / "web/node_modules/.bin", tmp_path / "tools"
    (theirs / "bin").mkdir(parents=True)
    (theirs / "pyvenv.cfg").touch()
    for folder, name in ((theirs / "bin", "foreign"), (modules, "foreign"), (tools, "tool")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    env = {"PATH": f"{theirs}/bin:{modules}:{tools}:{without_ours()}", "VIRTUAL_ENV": str(theirs)}
    env["npm_lifecycle_event"] = "start"
    with Sandbox(tmp_path, "process", env) as box:
        box.repository()
        box.start()
        shell = "[[sh: echo $(command -v foreign):$(command -v tool):$VIRTUAL_ENV > seen]] [[done: it]]"
        box.ao("new", "--name", "x", shell)
        file = Path(box.session("app-x")["workspacePath"]) / "seen"
        box.until(lambda: file.exists() and file.read_text(), "the agent")
        assert file.read_text() == f":{tools}/tool:\n"
        assert box.ao("sh", "app-x", "--", "sh", "-c", "echo $(command -v foreign)$VIRTUAL_ENV").stdout == "\n"


def test_a_daemon_that_was_started_by_a_link_to_our_environment_knows_it(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(sys.prefix)
    with Sandbox(tmp_path, "process", {"PATH": f"{OURS}:{link}/bin:{without_ours()}"}) as box:
        (box.user_home / ".profile").write_text(f'export PATH="{OURS}:$PATH"\n')
        box.repository()
        argv = [str(link / "bin" / "python"), "-P", "-m", "agent_orchestrator", "new", "--name", "x"]
        done = subprocess.run(
            [*argv, f"[[sh: for one in {' '.join(NAMES)}; do command -v $one; done > seen; :]] [[done: it]]"],
            cwd=box.repo,
            env=box.env,
            check=False,
        )
        assert done.returncode == 0
        file = Path(box.session("app-x")["workspacePath"]) / "seen"
        box.until(lambda: file.exists() and "orchestrator\n" in file.read_text(), "the agent")
        assert str(OURS) not in file.read_text() and str(link) not in file.read_text()


def test_a_person_gets_ao_from_a_folder_that_holds_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    subprocess.run([sys.executable, "-m", "agent_orchestrator.base.interpreter", str(folder)], check=True)
    assert sorted(one.name for one in folder.iterdir()) == ["agent-orchestrator", "ao"]
    for name in ("ao", "agent-orchestrator"):
        done = subprocess.run([folder / name, "--version"], cwd="/", capture_output=True, text=True, check=True)
        assert done.stdout.startswith("ao ")


def test_nor_on_a_node(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process", {"PATH": f"{OURS}:{without_ours()}", "VIRTUAL_ENV": sys.prefix}) as box:
        for name in set(VARIABLES) - {"VIRTUAL_ENV"}:
            box.env.pop(name, None)
        (box.user_home / ".profile").write_text(f'export PATH="{OURS}:$PATH"\n')
        (tmp_path / "look.sh").write_text(LOOK)
        box.home.path.mkdir(parents=True)
        box.home.config.write_text(NODES.replace("HOME", str(tmp_path / "node")))
        box.repository(config=f"defaults: {{agent: demo}}\npostCreate: ['sh {tmp_path}/look.sh set-up']\n")
        box.start()
        cluster = Cluster(box)
        try:
            box.ao("new", "--node", "n1", "--name", "x", f"[[sh: sh {tmp_path}/look.sh agent]] [[done: it]]")
            cluster.until("x", "idle", "review_pending")
            for where in ("set-up", "agent"):
                found = seen(box, where)
                assert found["ao"] == str(tmp_path / "node" / "bin" / "ao"), where
                assert found["lint-imports"] == (shutil.which("lint-imports", path=without_ours()) or ""), where
                assert str(OURS) not in found["PATH"].split(":") and "VIRTUAL_ENV" not in found, where
        finally:
            box.ao("stop", "x", check=False)
            cluster.kill()
