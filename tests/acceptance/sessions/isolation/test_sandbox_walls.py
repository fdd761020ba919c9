"""`sandbox: bwrap`, attacked from inside: which operations of an agent succeed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agent_orchestrator
from agent_orchestrator.testing.sandbox import Sandbox, have_bwrap

pytestmark = pytest.mark.skipif(not have_bwrap(), reason="bubblewrap cannot make a sandbox here")

CONFIG = """\
defaults: {{agent: probe, runtime: process, workspace: {workspace}}}
agents:
  probe: {{tool: command, command: [sh, -c, '. "$AO_TASK_FILE"'], prompt: file, permissions: full, options: {{keeps: [~/.probe]}}}}
  demo: {{tool: demo}}
projects:
  app: {{path: ., sandbox: bwrap, symlinks: [shared]}}
"""

ATTACKS = r"""
says() { name=$1; shift; if (eval "$*") >/dev/null 2>&1; then echo "$name=yes"; else echo "$name=no"; fi; }
common=$(git rev-parse --path-format=absolute --git-common-dir)
says home 'touch ~/planted'
says etc 'touch /etc/planted'
says kept 'echo x > ~/.probe/login'
says key 'grep -q secret ~/.ssh/id'
says netrc 'grep -q secret ~/.netrc'
says token 'cat "$AO_HOME/token"'
says socket 'test -e "$AO_HOME/daemon.sock"'
says database 'test -e "$AO_HOME/ao.db"'
says others 'test -e "$AO_HOME/sessions/app-other"'
says private 'touch "${AO_SPOOL%/*}/planted"'
says replace 'ln -sf ~/.bashrc "${AO_SPOOL%/*}/terminal.log"'
says spool 'rm -f "$AO_SPOOL"'
says sysctl 'cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern'
says signal 'kill -0 @PID@'
says outside 'test -e /proc/@PID@/environ && grep -qz AO_HOME /proc/@PID@/environ'
says remount 'mount -o remount,rw / || umount "$AO_HOME"'
says file 'echo hello > hello.txt'
says shared 'test -e shared/lib && touch shared/planted'
ln -s ~ out
says symlink 'touch out/planted'
says checkout 'touch @REPO@/planted'
says config 'git config --file "$common/config" core.fsmonitor ~/evil'
says hook 'mkdir -p "$common/hooks" && echo evil > "$common/hooks/post-commit"'
says hookspath 'git config core.hooksPath /tmp'
says worktreeconfig 'echo evil >> "$(git rev-parse --git-dir)/config.worktree"'
says base 'git update-ref refs/heads/main HEAD~1'
says pack 'git pack-refs --all'
says pointer 'mv .git .gone || rm -f .git'
says commondir 'echo /tmp > "$(git rev-parse --git-dir)/commondir"'
says move 'git worktree move . ../elsewhere'
says add 'git worktree add ../other'
says tmp 'touch /tmp/mine && test -z "$(ls /tmp | grep -v -e mine -e @TOP@)"'
rm -f out
git init -q sub && cd sub && git config user.email a@b && git config user.name a
git config filter.x.clean 'touch @ESCAPED@; cat' && echo '* filter=x' > .gitattributes
echo one > file && git add -A && git commit -qm sub && cd ..
git add -A 2>/dev/null && git commit -qm work && says commit 'git log -1 --format=%s | grep -q work'
echo two > sub/file
sleep 600 & setsid sleep 600 &
trap 'exit 7' TERM
echo '{"event": "ask", "question": "well?"}' >> "$AO_SPOOL"
while :; do sleep 0.1; done
"""


WAITS = r"""
[ -e loose.txt ] && exec sleep 600
while [ ! -e go ]; do sleep 0.05; done
git add go && git commit -qm later && echo committed
echo staged > staged.txt && git add staged.txt && echo loose > loose.txt
ao status app-inside >/dev/null && echo asked
trap 'exit 7' TERM
echo '{"event": "ask", "question": "well?"}' >> "$AO_SPOOL"
while :; do sleep 0.1; done
"""

ASK = '{"event": "ask", "question": "well?"}'

ALLOWED = {"kept", "file", "commit", "tmp"}
ALLOWED_IN_CLONE = ALLOWED | {"base", "pack", "worktreeconfig"}
"""What else an agent may do in a clone, which it does not share."""


@pytest.fixture(scope="module", params=["worktree", "clone"])
def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("box"), "process") as box:
        ao = box.user_home / "bin" / "ao"
        box.env["PATH"] = f"{ao.parent}:{box.env['PATH']}"
        ao.parent.mkdir(parents=True)
        ao.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent_orchestrator "$@"\n')
        ao.chmod(0o755)
        repo = box.repository(config=CONFIG.format(workspace=request.param))
        (repo / "shared").mkdir()
        (repo / "shared" / "lib").write_text("x")
        box.git("commit", "-qm", "second", "--allow-empty")
        for path in (".ssh/id", ".netrc"):
            (box.user_home / path).parent.mkdir(exist_ok=True)
            (box.user_home / path).write_text("secret")
        box.start()
        yield box


def create_session(box: Sandbox, name: str, script: str) -> None:
    """Create a session whose agent is this script."""
    visible_folders = {
        Path(path).parts[2] for path in (box.folder, agent_orchestrator.__file__) if str(path).startswith("/tmp/")
    }
    placeholders: dict[str, object] = {
        "REPO": box.repo,
        "ESCAPED": box.folder / "escaped",
        "TOP": " -e ".join(visible_folders),
    }
    placeholders["PID"] = box.session("app-other")["pid"] if "@PID@" in script else ""
    for key, value in placeholders.items():
        script = script.replace(f"@{key}@", str(value))
    task = box.folder / f"{name}.sh"
    task.write_text(script)
    box.ao("new", "--name", name, "--file", str(task))


def wait_for_question(box: Sandbox, session: str) -> dict[str, Any]:
    """Wait until the session's agent has asked its question, and return the session."""
    asking = box.wait_until(lambda: (now := box.session(session))["status"] == "needs_input" and now, "its question")
    assert isinstance(asking, dict)
    return asking


def wait_for_output(box: Sandbox, session: str, last: str) -> list[str]:
    """Wait until an agent has printed its last line, and return all its words."""
    log = box.home.terminal_log(session)
    box.wait_until(lambda: re.search(rf"^{last}.*\n", log.read_text(), re.MULTILINE), f"{last} in its terminal")
    return log.read_text().split()


def test_a_sandboxed_agent_can_do_only_what_is_allowed(box: Sandbox) -> None:
    box.ao("new", "--agent", "demo", "--name", "other", "wait")
    create_session(box, "inside", ATTACKS)
    session = wait_for_question(box, "app-inside")
    answers = dict(line.split("=", 1) for line in wait_for_output(box, "app-inside", "commit="))
    clone = (Path(session["workspacePath"]) / ".git").is_dir()
    assert {name for name, answer in answers.items() if answer == "yes"} == (ALLOWED_IN_CLONE if clone else ALLOWED)
    assert len(answers) == ATTACKS.count("\nsays ") + 1
    assert box.session("app-inside")["notes"] == []  # `permissions: full` counts
    pids = process_tree(session["pid"])
    assert len(pids) >= 5, pids
    box.ao("diff", "app-inside")
    box.ao("stop", "app-inside")
    assert box.session("app-inside")["exitCode"] == 7
    assert [name_left for pid in pids if (name_left := process_name(pid))] == []
    # Git compared the submodule and ran its filter inside the sandbox.
    assert not (box.folder / "escaped").exists()
    assert not [*box.folder.rglob("planted")]


def test_a_sandboxed_agent_commits_after_pack_refs_and_its_work_is_restored(box: Sandbox) -> None:
    create_session(box, "work", WAITS.replace("app-inside", "app-work"))
    workspace = Path(box.session("app-work")["workspacePath"])
    box.git("pack-refs", "--all", "--prune")
    (workspace / "go").touch()
    wait_for_question(box, "app-work")
    assert wait_for_output(box, "app-work", "asked") == ["committed", "asked"]
    box.ao("stop", "app-work")
    assert not workspace.exists()
    assert "later" in box.git("log", "--format=%s", "feature/work")
    assert [*(box.repo / ".git" / "refs").rglob("ao-app-work.lock")] == []
    box.ao("restore", "app-work")
    assert (workspace / "loose.txt").read_text() == "loose\n"
    assert "A  staged.txt" in box.git("status", "--short", cwd=workspace)


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    pids = [pid]
    for parent in pids:
        with contextlib.suppress(OSError):  # it has ended
            pids += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return pids


def process_name(pid: int) -> str:
    """Return the name of a running process, or "" if it has ended."""
    with contextlib.suppress(OSError):
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return "" if fields.split()[0] in "ZX" else name
    return ""


def test_a_sandboxed_session_has_a_clone_and_cannot_replace_objects(tmp_path: Path) -> None:
    """Git trusts the name of an object: write access to its file would change the content of the base."""
    with Sandbox(tmp_path, "process") as box:
        repo = box.repository(config=CONFIG.replace(", workspace: {workspace}", "").format())
        blob = box.git("rev-parse", "main:README.md")
        file = repo / ".git" / "objects" / blob[:2] / blob[2:]
        before = file.read_bytes()
        box.start()
        create_session(box, "forger", f"rm -f {file}; echo forged > {file}; echo '{ASK}' >> $AO_SPOOL; sleep 600")
        workspace = Path(wait_for_question(box, "app-forger")["workspacePath"])
        assert (workspace / ".git").is_dir() and file.read_bytes() == before


def test_without_bubblewrap_no_session_is_created(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        programs = tmp_path / "programs"
        programs.mkdir()
        for name in ("git", "sh", "env", "cat"):
            (programs / name).symlink_to(shutil.which(name) or "")
        box.env["PATH"] = str(programs)
        box.repository(config=CONFIG.format(workspace="worktree"))
        box.start()
        result = box.ao("new", "--agent", "demo", "hello", check=False)
        assert result.returncode == 1
        assert result.stderr.startswith("ao: sandbox: bwrap needs bubblewrap, which is not installed: install it")
        assert result.stderr.count("\n") == 1
        assert box.sessions() == []
        checks = json.loads(box.ao("doctor", "--json", check=False).stdout)["checks"]
        sandbox_check = next(check for check in checks if check["name"] == "sandbox")
        assert (sandbox_check["state"], "app wants it" in sandbox_check["detail"]) == ("failed", True)
