"""Agents, checks, set-up and fixes of a project find the project's programs, never those of the daemon's interpreter.

The daemon is started as after an earlier quickstart: with our virtual environment activated in the terminal and first in the PATH of the
login shell's profile.
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

OUR_PROGRAMS = Path(sys.prefix) / "bin"
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
REPORT_SCRIPT = f"""\
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

pytestmark = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not run in a virtual environment")


def clean_path() -> str:
    """Return a PATH with Git and the machine's own programs."""
    git = shutil.which("git")
    assert git
    return os.pathsep.join(dict.fromkeys([str(Path(git).parent), "/usr/bin", "/bin"]))


def borrowed_tool() -> str:
    """Return a tool that only our environment has."""
    return next(name for name in NAMES if (OUR_PROGRAMS / name).exists() and not shutil.which(name, path=clean_path()))


@pytest.fixture(params=["tui", "headless"])
def box(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    env = {
        "PATH": f"{OUR_PROGRAMS}:{clean_path()}",
        "VIRTUAL_ENV": sys.prefix,
        "VIRTUAL_ENV_PROMPT": "ours",
        SECRET: "x",
    }
    with Sandbox(tmp_path, "process", env) as box:
        for name in set(VARIABLES) - set(env):  # this machine may set them
            box.env.pop(name, None)
        script = tmp_path / "look.sh"
        script.write_text(REPORT_SCRIPT)
        profile = f'export PATH="{OUR_PROGRAMS}:$PATH" VIRTUAL_ENV={sys.prefix}\n'
        (box.user_home / ".profile").write_text(profile)
        box.repository(config=CONFIG.format(look=script, mode=request.param, borrowed=borrowed_tool()))
        box.start()
        yield box


def read_report(box: Sandbox, source: str) -> dict[str, str]:
    """Wait for the report of the script and return the variables and programs in it."""
    file = box.folder / f"seen-{source}"
    box.wait_until(lambda: file.exists() and "PATH=" in file.read_text(), f"the look of the {source}")
    return dict(line.partition("=")[::2] for line in file.read_text().splitlines())


def test_only_ao_is_found_of_our_programs(box: Sandbox) -> None:
    script = box.folder / "look.sh"
    box.ao("new", "--name", "x", f"[[sh: sh {script} agent]] [[write: a|b]] [[commit: a]] [[done: it]]")
    box.ao("sh", "app-x", "--", "sh", str(script), "sh")
    box.ao("fix", "--dry-run", "--command", f"sh {script} fix", check=False)
    for source in ("set-up", "agent", "check", "sh", "fix"):
        report = read_report(box, source)
        folder = box.home.path / "bin"
        for name in NAMES:
            own = shutil.which(name, path=clean_path())
            expected = str(folder / name) if name in ("ao", "agent-orchestrator") else own or ""
            assert report[name] == expected, source
        assert str(OUR_PROGRAMS) not in report["PATH"].split(":"), source
        # A person's shell has the variables of its terminal.
        assert not [name for name in VARIABLES if name in report and (source, name) != ("sh", SECRET)], source


def test_a_check_does_not_pass_with_our_tools(box: Sandbox) -> None:
    box.ao("new", "--name", "x", "[[write: a|b]] [[commit: a]] [[done: it]]")

    def states() -> dict[str, str]:
        pull_request = box.session("app-x")["pr"]
        return {check["name"]: check["state"] for check in pull_request["checks"]} if pull_request else {}

    box.wait_until(
        lambda: set(states().values()) - {"queued", "running"} and states().get("look") == "success", "the check"
    )
    box.wait_until(lambda: states()["borrowed"] not in ("queued", "running"), "the other check")
    assert states()["borrowed"] != "success"


def test_ao_works_inside_an_agent(box: Sandbox) -> None:
    box.ao("new", "--name", "x", "[[sh: ao status --json > seen-status]] [[done: it]]")
    file = Path(box.session("app-x")["workspacePath"]) / "seen-status"
    box.wait_until(lambda: file.exists() and file.read_text().endswith("}\n"), "what the agent asked")
    assert [entry["name"] for entry in json.loads(file.read_text())["sessions"]] == ["x"]


def test_doctor_warns_about_our_environment_in_the_path(box: Sandbox) -> None:
    [line] = [entry for entry in box.json("doctor")["checks"] if entry["name"] == "PATH"]
    assert line["state"] == "warning" and str(OUR_PROGRAMS) in line["detail"] and "login shell" in line["detail"]
    assert f'export PATH="{sys.prefix}/ao/bin:$PATH"' in line["remedy"] or f"{box.home.path}/bin" in line["remedy"]
    (box.user_home / ".profile").unlink()
    box.ao("shutdown")
    [line] = [entry for entry in box.json("doctor")["checks"] if entry["name"] == "PATH"]
    assert "this terminal" in line["detail"]
    box.env["PATH"] = clean_path()
    assert not [entry for entry in box.json("doctor")["checks"] if entry["name"] == "PATH"]


def test_an_environment_activated_at_the_daemons_start_is_not_passed_on(tmp_path: Path) -> None:
    """The environment of another project, of Python or Node."""
    foreign_environment, modules, tools = (
        tmp_path / "theirs/.venv",
        tmp_path / "web/node_modules/.bin",
        tmp_path / "tools",
    )
    (foreign_environment / "bin").mkdir(parents=True)
    (foreign_environment / "pyvenv.cfg").touch()
    for folder, name in ((foreign_environment / "bin", "foreign"), (modules, "foreign"), (tools, "tool")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    env = {
        "PATH": f"{foreign_environment}/bin:{modules}:{tools}:{clean_path()}",
        "VIRTUAL_ENV": str(foreign_environment),
    }
    env["npm_lifecycle_event"] = "start"
    with Sandbox(tmp_path, "process", env) as box:
        box.repository()
        box.start()
        shell = "[[sh: echo $(command -v foreign):$(command -v tool):$VIRTUAL_ENV > seen]] [[done: it]]"
        box.ao("new", "--name", "x", shell)
        file = Path(box.session("app-x")["workspacePath"]) / "seen"
        box.wait_until(lambda: file.exists() and file.read_text(), "the agent")
        assert file.read_text() == f":{tools}/tool:\n"
        assert box.ao("sh", "app-x", "--", "sh", "-c", "echo $(command -v foreign)$VIRTUAL_ENV").stdout == "\n"


def test_our_environment_is_recognized_through_a_symlink(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(sys.prefix)
    with Sandbox(tmp_path, "process", {"PATH": f"{OUR_PROGRAMS}:{link}/bin:{clean_path()}"}) as box:
        (box.user_home / ".profile").write_text(f'export PATH="{OUR_PROGRAMS}:$PATH"\n')
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
        box.wait_until(lambda: file.exists() and "orchestrator\n" in file.read_text(), "the agent")
        assert str(OUR_PROGRAMS) not in file.read_text() and str(link) not in file.read_text()


def test_the_programs_folder_contains_only_ao(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    subprocess.run([sys.executable, "-m", "agent_orchestrator.base.interpreter", str(folder)], check=True)
    assert sorted(entry.name for entry in folder.iterdir()) == ["agent-orchestrator", "ao"]
    for name in ("ao", "agent-orchestrator"):
        done = subprocess.run([folder / name, "--version"], cwd="/", capture_output=True, text=True, check=True)
        assert done.stdout.startswith("ao ")


def test_our_programs_are_not_found_on_a_node_either(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process", {"PATH": f"{OUR_PROGRAMS}:{clean_path()}", "VIRTUAL_ENV": sys.prefix}) as box:
        for name in set(VARIABLES) - {"VIRTUAL_ENV"}:
            box.env.pop(name, None)
        (box.user_home / ".profile").write_text(f'export PATH="{OUR_PROGRAMS}:$PATH"\n')
        (tmp_path / "look.sh").write_text(REPORT_SCRIPT)
        box.home.path.mkdir(parents=True)
        box.home.config.write_text(NODES.replace("HOME", str(tmp_path / "node")))
        box.repository(config=f"defaults: {{agent: demo}}\npostCreate: ['sh {tmp_path}/look.sh set-up']\n")
        box.start()
        cluster = Cluster(box)
        try:
            box.ao("new", "--node", "n1", "--name", "x", f"[[sh: sh {tmp_path}/look.sh agent]] [[done: it]]")
            cluster.until("x", "idle", "review_pending")
            for source in ("set-up", "agent"):
                report = read_report(box, source)
                assert report["ao"] == str(tmp_path / "node" / "bin" / "ao"), source
                assert report["lint-imports"] == (shutil.which("lint-imports", path=clean_path()) or ""), source
                assert str(OUR_PROGRAMS) not in report["PATH"].split(":") and "VIRTUAL_ENV" not in report, source
        finally:
            box.ao("stop", "x", check=False)
            cluster.kill()
