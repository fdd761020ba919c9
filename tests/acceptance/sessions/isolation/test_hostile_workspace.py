"""A sandboxed agent prepares its workspace against the daemon, whose Git and file reads must not follow."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox, have_bwrap

pytestmark = pytest.mark.skipif(not have_bwrap(), reason="bubblewrap cannot make a sandbox here")

SECRET = "hidden-from-agents-91c4"
CONFIG = """\
defaults: {{agent: probe, runtime: process, workspace: {workspace}}}
agents:
  probe: {{tool: command, command: [sh, -c, '. "$AO_TASK_FILE"'], prompt: file, permissions: full, options: {{keeps: [~/.probe]}}}}
projects:
  app: {{path: ., sandbox: bwrap, copy: ["vendor/*"]}}
"""

ATTACK = r"""
[ -e ready ] && exec sleep 600
own=$(git rev-parse --absolute-git-dir)
# Where Git keeps its state, names that lead to what is hidden from it.
ln -s @HOME@/.ssh/id "$own/ORIG_HEAD"
ln -s @HOME@/.ssh/id "$own/STOLEN"
mkdir -p "$own/rebase-merge" && ln -s @HOME@/.ssh/id "$own/rebase-merge/message"
# The same among its files: ignored ones that are to be kept, by way of a folder that leads out.
echo vendor >> .gitignore; ln -s @OTHER@ vendor
ln -s @HOME@/.ssh link; ln -s @HOME@/.ssh/id file-link; mkfifo pipe
# What keeps its branch's folder, led elsewhere.
common=$(git rev-parse --path-format=absolute --git-common-dir)
for lock in "$common"/refs/heads/*/ao-*.lock; do [ -e "$lock" ] && ln -sf @HOME@/planted "$lock"; done
# In the place of the next branch's log, a file of the person's.
mkdir -p "$common/logs/refs/heads/feature" && ln -s @HOME@/.profile "$common/logs/refs/heads/feature/next"
# A repository within, whose configuration names programs for whoever looks at it.
git init -q sub && cd sub && git config user.email a@b && git config user.name a
spy="sh -c 'cat @AO@/token @AO@/config.yaml > @WS@/stolen; env > @WS@/seen; echo ran >> @WS@/ran; cat'"
git config filter.x.clean "$spy" && git config filter.x.smudge "$spy"
git config diff.x.textconv "$spy" && git config diff.x.command "$spy" && git config core.sshCommand "$spy"
printf '* filter=x diff=x\n' > .gitattributes
echo one > file && git add -A && git commit -qm sub && git config core.fsmonitor "$spy" && cd ..
git -c core.fsmonitor=false add sub .gitignore 2>/dev/null && git -c core.fsmonitor=false commit -qm work
echo two > sub/file; echo loose > loose.txt; rm -f stolen seen ran; touch ready
echo '{"event": "ask", "question": "well?"}' >> "$AO_SPOOL"
trap 'exit 0' TERM
while :; do sleep 0.1; done
"""


@pytest.fixture(params=["worktree", "clone"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as box:
        box.env["FORGE_PASSWORD"] = SECRET
        box.repository(config=CONFIG.format(workspace=request.param))
        (box.user_home / ".ssh").mkdir(parents=True)
        (box.user_home / ".ssh/id").write_text(SECRET)
        (box.user_home / ".profile").write_text("# mine\n")
        box.start()
        yield box


def all_objects(repo: Path) -> bytes:
    """Return all objects of a repository."""
    command = ["git", "cat-file", "--batch-all-objects", "--batch", "--buffer"]
    return subprocess.run(command, cwd=repo, capture_output=True, check=True).stdout


def test_the_daemon_does_not_fetch_hidden_files_for_an_agent(box: Sandbox) -> None:
    other = box.folder / "other"
    subprocess.run(["git", "init", "-q", str(other / "theirs")], check=True)
    (other / "theirs/private.txt").write_text(SECRET)
    script = ATTACK
    placeholders = {
        "HOME": box.user_home,
        "AO": box.home.path,
        "OTHER": other,
        "WS": box.home.worktrees / "app" / "bad",
    }
    for key, value in placeholders.items():
        script = script.replace(f"@{key}@", str(value))
    task = box.folder / "task.sh"
    task.write_text(script)
    box.ao("new", "--name", "bad", "--file", str(task))
    box.wait_until(lambda: box.session("app-bad")["status"] == "needs_input", "its question")
    workspace = Path(box.session("app-bad")["workspacePath"])
    assert workspace == placeholders["WS"], "the attack's programs write there"
    assert SECRET not in box.ao("diff", "app-bad").stdout
    box.request("GET", "/api/sessions/app-bad")
    filter_output = (workspace / "seen").read_text() if (workspace / "seen").exists() else ""
    assert (workspace / "ran").exists(), "Git ran the program of the nested repository: the attack works"
    assert not (workspace / "stolen").exists() or (workspace / "stolen").read_text() == ""
    assert SECRET not in filter_output and "FORGE_PASSWORD" not in filter_output
    box.ao("stop", "app-bad", check=False)
    assert box.git("for-each-ref", "refs/ao/rescue"), "its work was saved, with its symlinks"
    assert not (box.user_home / "planted").exists()
    box.ao("new", "--name", "next", "true", check=False)
    assert (box.user_home / ".profile").read_text() == "# mine\n", (
        "the log of the new branch does not follow the symlink"
    )
    assert SECRET.encode() not in all_objects(box.repo)
