"""A daemon is killed during a check: nothing is left of the check, and the next one runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.checks.runner import Checks
from tests.integration.checks.stage import CheckStage
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio

DAEMON = """
import asyncio, os, sys
from pathlib import Path
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import CheckSpec
repo, home, command, *set_up = sys.argv[1:]
spec = CheckSpec("app", Path(repo), "HEAD", "test", command, env=dict(os.environ), post_create=tuple(set_up))
asyncio.run(Checks(Home(Path(home)), LocalHost()).run(spec))
"""
HANGING_COMMAND = (
    "trap '' PIPE TERM; echo $$ >>$OUT/pids; sleep 300 & echo $! >>$OUT/pids; setsid sleep 300 & echo $! >>$OUT/pids;"
    " (setsid sh -c 'sleep 300 & echo $! >>$OUT/pids' &); while [ $(wc -l <$OUT/pids) -lt 4 ]; do sleep 0.01; done;"
    " touch $OUT/up; wait; sleep 300"
)


def kill_daemon_during(stage: CheckStage, *argv: str) -> None:
    env = {**os.environ, "OUT": str(stage.outside)}
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(stage.repo), str(stage.home.path), *argv], env=env)
    try:
        stage.until(lambda: (stage.outside / "up").exists(), "the check to be up")
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()


@pytest.mark.parametrize("argv", [(HANGING_COMMAND,), ("true", HANGING_COMMAND)], ids=["check", "set-up"])
async def test_a_killed_daemons_check_is_cleaned_up_and_the_next_one_runs(
    stage: CheckStage, argv: tuple[str, ...]
) -> None:
    kill_daemon_during(stage, *argv)
    assert len(stage.alive("pids")) == 4
    assert len(stage.checkout_names()) == 1
    await stage.checks.recover()
    assert stage.alive("pids") == []
    assert stage.checkout_names() == []
    assert len(git(stage.repo, "worktree", "list").splitlines()) == 1
    assert git(stage.repo, "status", "--porcelain") == ""
    assert await stage.checks.stored_result(stage.spec(argv[0])) is None
    assert (await stage.checks.run(stage.spec("true"))).state == "success"


async def test_a_prepared_checkout_is_reused_after_a_restart(stage: CheckStage) -> None:
    spec = stage.spec("true", post_create=("echo x >>$OUT/set-ups",))
    await stage.checks.run(spec)
    checks = Checks(stage.home, stage.host)
    await checks.recover()
    assert (await checks.run(spec, again=True)).state == "success"
    assert len(stage.lines("set-ups")) == 1


async def test_a_prepared_checkout_that_was_in_use_is_removed(stage: CheckStage) -> None:
    await stage.checks.run(stage.spec("true", post_create=(":",)))
    for folder in (stage.home.path / "checks" / "work").glob("*/*"):
        (folder / "run.json").write_text("torn")
    await stage.checks.recover()
    assert stage.checkout_names() == []


async def test_no_process_is_killed_after_a_reboot(stage: CheckStage, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = stage.home.path / "checks" / "work" / "app" / "x-1"
    (checkout / "tree").mkdir(parents=True)
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        process = stage.host.process(bystander.pid)
        assert process is not None
        (checkout / "run.json").write_text(
            f'{{"mark": "none", "boot": "{stage.host.boot_id()}", "pid": {process.pid}, "started": "{process.started}"}}'
        )
        monkeypatch.setenv("AO_TEST_BOOT_ID", "another")
        await Checks(stage.home, LocalHost()).recover()
        assert stage.host.process(bystander.pid) == process
        assert stage.checkout_names() == []
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_reused_pid_is_not_killed(stage: CheckStage) -> None:
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        checkout = stage.home.path / "checks" / "work" / "app" / "x-1"
        checkout.mkdir(parents=True)
        (checkout / "run.json").write_text(
            f'{{"mark": "none", "boot": "{stage.host.boot_id()}", "pid": {bystander.pid}, "started": "1"}}'
        )
        await stage.checks.recover()
        assert stage.host.process(bystander.pid) is not None
    finally:
        bystander.kill()
        bystander.wait()


async def test_old_results_are_removed(stage: CheckStage) -> None:
    result = await stage.checks.run(stage.spec("true"))
    await stage.checks.recover()
    assert result.log.exists()
    os.utime(result.log.parent, (1, 1))
    await stage.checks.recover()
    assert not Path(result.log).exists()
