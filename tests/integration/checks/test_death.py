"""The daemon is killed in the middle of a check: nothing is left of it, and the next one runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.checks import Checks
from tests.integration.checks.stage import Stage
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio

DAEMON = """
import asyncio, os, sys
from pathlib import Path
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.checks import Checks, CheckSpec
repo, home, command, *set_up = sys.argv[1:]
spec = CheckSpec("app", Path(repo), "HEAD", "test", command, env=dict(os.environ), post_create=tuple(set_up))
asyncio.run(Checks(Home(Path(home)), LocalHost()).run(spec))
"""
HANGS = (
    "trap '' PIPE TERM; echo $$ >>$OUT/pids; sleep 300 & echo $! >>$OUT/pids; setsid sleep 300 & echo $! >>$OUT/pids;"
    " (setsid sh -c 'sleep 300 & echo $! >>$OUT/pids' &); while [ $(wc -l <$OUT/pids) -lt 4 ]; do sleep 0.01; done;"
    " touch $OUT/up; wait; sleep 300"
)


def die_in_the_middle(stage: Stage, *argv: str) -> None:
    env = {**os.environ, "OUT": str(stage.outside)}
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(stage.repo), str(stage.home.path), *argv], env=env)
    try:
        stage.until(lambda: (stage.outside / "up").exists(), "the check to be up")
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()


@pytest.mark.parametrize("argv", [(HANGS,), ("true", HANGS)], ids=["check", "set-up"])
async def test_nothing_is_left_and_the_next_one_runs(stage: Stage, argv: tuple[str, ...]) -> None:
    die_in_the_middle(stage, *argv)
    assert len(stage.alive("pids")) == 4
    assert len(stage.work()) == 1
    await stage.checks.recover()
    assert stage.alive("pids") == []
    assert stage.work() == []
    assert len(git(stage.repo, "worktree", "list").splitlines()) == 1
    assert git(stage.repo, "status", "--porcelain") == ""
    assert await stage.checks.known(stage.spec(argv[0])) is None
    assert (await stage.checks.run(stage.spec("true"))).state == "success"


async def test_a_prepared_checkout_outlives_the_daemon(stage: Stage) -> None:
    spec = stage.spec("true", post_create=("echo x >>$OUT/set-ups",))
    await stage.checks.run(spec)
    checks = Checks(stage.home, stage.host)
    await checks.recover()
    assert (await checks.run(spec, again=True)).state == "success"
    assert len(stage.lines("set-ups")) == 1


async def test_a_prepared_checkout_that_was_in_use_goes(stage: Stage) -> None:
    await stage.checks.run(stage.spec("true", post_create=(":",)))
    for folder in (stage.home.path / "checks" / "work").glob("*/*"):
        (folder / "run.json").write_text("torn")
    await stage.checks.recover()
    assert stage.work() == []


async def test_another_boot_kills_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = stage.home.path / "checks" / "work" / "app" / "x-1"
    (beside / "tree").mkdir(parents=True)
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        found = stage.host.process(bystander.pid)
        assert found is not None
        (beside / "run.json").write_text(
            f'{{"mark": "none", "boot": "{stage.host.boot_id()}", "pid": {found.pid}, "started": "{found.started}"}}'
        )
        monkeypatch.setenv("AO_TEST_BOOT_ID", "another")
        await Checks(stage.home, LocalHost()).recover()
        assert stage.host.process(bystander.pid) == found
        assert stage.work() == []
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_pid_used_again_is_not_killed(stage: Stage) -> None:
    bystander = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        beside = stage.home.path / "checks" / "work" / "app" / "x-1"
        beside.mkdir(parents=True)
        (beside / "run.json").write_text(
            f'{{"mark": "none", "boot": "{stage.host.boot_id()}", "pid": {bystander.pid}, "started": "1"}}'
        )
        await stage.checks.recover()
        assert stage.host.process(bystander.pid) is not None
    finally:
        bystander.kill()
        bystander.wait()


async def test_old_results_are_forgotten(stage: Stage) -> None:
    result = await stage.checks.run(stage.spec("true"))
    await stage.checks.recover()
    assert result.log.exists()
    os.utime(result.log.parent, (1, 1))
    await stage.checks.recover()
    assert not Path(result.log).exists()
