"""`sandbox: bwrap`, attacked from inside: what an agent tries there and what comes of it."""

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

MAY = {"kept", "file", "commit", "tmp"}
MAY_IN_A_CLONE = MAY | {"base", "pack", "worktreeconfig"}
"""What it has for itself there."""


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


def begin(box: Sandbox, name: str, script: str) -> None:
    """A session whose agent is this script."""
    shown = {Path(path).parts[2] for path in (box.folder, agent_orchestrator.__file__) if str(path).startswith("/tmp/")}
    known: dict[str, object] = {"REPO": box.repo, "ESCAPED": box.folder / "escaped", "TOP": " -e ".join(shown)}
    known["PID"] = box.session("app-other")["pid"] if "@PID@" in script else ""
    for word, value in known.items():
        script = script.replace(f"@{word}@", str(value))
    task = box.folder / f"{name}.sh"
    task.write_text(script)
    box.ao("new", "--name", name, "--file", str(task))


def asks(box: Sandbox, session: str) -> dict[str, Any]:
    """The session, once its agent has come to its question."""
    found = box.until(lambda: (now := box.session(session))["status"] == "needs_input" and now, "its question")
    assert isinstance(found, dict)
    return found


def printed(box: Sandbox, session: str, last: str) -> list[str]:
    """What an agent printed, once the last line of it is there."""
    log = box.home.terminal_log(session)
    box.until(lambda: re.search(rf"^{last}.*\n", log.read_text(), re.MULTILINE), f"{last} in its terminal")
    return log.read_text().split()


def test_what_an_agent_may_and_may_not(box: Sandbox) -> None:
    box.ao("new", "--agent", "demo", "--name", "other", "wait")
    begin(box, "inside", ATTACKS)
    session = asks(box, "app-inside")
    said = dict(line.split("=", 1) for line in printed(box, "app-inside", "commit="))
    clone = (Path(session["workspacePath"]) / ".git").is_dir()
    assert {name for name, answer in said.items() if answer == "yes"} == (MAY_IN_A_CLONE if clone else MAY)
    assert len(said) == ATTACKS.count("\nsays ") + 1
    assert box.session("app-inside")["notes"] == []  # `permissions: full` counts
    inside = family(session["pid"])
    assert len(inside) >= 5, inside
    box.ao("diff", "app-inside")
    box.ao("stop", "app-inside")
    assert box.session("app-inside")["exitCode"] == 7
    assert [what for pid in inside if (what := running(pid))] == []
    # Git was asked what has changed in the submodule, and ran its filter where it could do nothing.
    assert not (box.folder / "escaped").exists()
    assert not [*box.folder.rglob("planted")]


def test_it_commits_after_a_pack_of_all_branches_and_its_work_is_saved_and_brought_back(box: Sandbox) -> None:
    begin(box, "work", WAITS.replace("app-inside", "app-work"))
    workspace = Path(box.session("app-work")["workspacePath"])
    box.git("pack-refs", "--all", "--prune")
    (workspace / "go").touch()
    asks(box, "app-work")
    assert printed(box, "app-work", "asked") == ["committed", "asked"]
    box.ao("stop", "app-work")
    assert not workspace.exists()
    assert "later" in box.git("log", "--format=%s", "feature/work")
    assert [*(box.repo / ".git" / "refs").rglob("ao-app-work.lock")] == []
    box.ao("restore", "app-work")
    assert (workspace / "loose.txt").read_text() == "loose\n"
    assert "A  staged.txt" in box.git("status", "--short", cwd=workspace)


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):  # it ended just now
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def running(pid: int) -> str:
    """What it runs; nothing: it has ended."""
    with contextlib.suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return "" if rest.split()[0] in "ZX" else name
    return ""


def test_by_itself_it_has_a_clone_and_exchanges_no_object_of_the_repository(tmp_path: Path) -> None:
    """Git believes an object's name: who may write the file of one decides what the base holds at its next checkout."""
    with Sandbox(tmp_path, "process") as box:
        repo = box.repository(config=CONFIG.replace(", workspace: {workspace}", "").format())
        blob = box.git("rev-parse", "main:README.md")
        file = repo / ".git" / "objects" / blob[:2] / blob[2:]
        before = file.read_bytes()
        box.start()
        begin(box, "forger", f"rm -f {file}; echo forged > {file}; echo '{ASK}' >> $AO_SPOOL; sleep 600")
        workspace = Path(asks(box, "app-forger")["workspacePath"])
        assert (workspace / ".git").is_dir() and file.read_bytes() == before


def test_without_bubblewrap_nothing_is_made(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        programs = tmp_path / "programs"
        programs.mkdir()
        for name in ("git", "sh", "env", "cat"):
            (programs / name).symlink_to(shutil.which(name) or "")
        box.env["PATH"] = str(programs)
        box.repository(config=CONFIG.format(workspace="worktree"))
        box.start()
        refused = box.ao("new", "--agent", "demo", "hello", check=False)
        assert refused.returncode == 1
        assert refused.stderr.startswith("ao: sandbox: bwrap needs bubblewrap, which is not installed: install it")
        assert refused.stderr.count("\n") == 1
        assert box.sessions() == []
        checks = json.loads(box.ao("doctor", "--json", check=False).stdout)["checks"]
        found = next(check for check in checks if check["name"] == "sandbox")
        assert (found["state"], "app wants it" in found["detail"]) == ("failed", True)
