"""Checks with real Git and real processes: where commands run, their results, and the cache."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.changes.checks.assessment import assess
from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runner import Checks, run_confirmed
from agent_orchestrator.changes.checks.spec import Limits
from agent_orchestrator.errors import AoError, NotFound
from tests.integration.checks.stage import CheckStage
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


async def test_a_check_runs_at_the_exact_commit_in_a_clean_checkout(stage: CheckStage) -> None:
    first = git(stage.repo, "rev-parse", "HEAD")
    stage.commit({"a.txt": "changed\n"})
    (stage.repo / "a.txt").write_text("not committed\n")
    (stage.repo / "untracked.txt").write_text("x")
    lines: list[str] = []
    command = "cat a.txt; ls -A; git status --porcelain; git rev-parse HEAD; pwd; echo CI=$CI; read x || echo no stdin"
    result = await stage.checks.run(stage.spec(command, commit=first), lines.append)
    assert (result.state, result.exit_code, result.summary) == ("success", 0, "")
    assert lines == ["one", ".git", ".gitignore", "a.txt", "b.txt", "d", first, lines[7], "CI=1", "no stdin"]
    assert lines[7].startswith(str(stage.home.path))
    assert result.log.read_text().splitlines() == lines
    assert result.tree == git(stage.repo, "rev-parse", f"{first}^{{tree}}")
    assert result.log == stage.checks.log_path("app", result.tree, "test")
    assert stage.checkout_names() == []


async def test_git_commands_of_a_check_do_not_affect_the_repository(stage: CheckStage) -> None:
    git(stage.repo, "tag", "-a", "v1", "-m", "v1")
    git(stage.repo, "config", "core.worktree", str(stage.repo))
    before = (git(stage.repo, "for-each-ref"), (stage.repo / ".git" / "config").read_text())
    command = (
        "git describe && git diff --quiet main && echo x >a.txt && git commit -qam x && git config a.b c && git branch -f main"
        " && git stash list && git tag v2"
    )
    result = await stage.checks.run(stage.spec(command, base="main"))
    assert result.state == "success", result.summary
    assert (git(stage.repo, "for-each-ref"), (stage.repo / ".git" / "config").read_text()) == before
    assert git(stage.repo, "status", "--porcelain") == ""
    assert len(git(stage.repo, "worktree", "list").splitlines()) == 1


async def test_a_check_gets_only_the_given_environment(stage: CheckStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    spec = stage.spec("env; env >$OUT/set-up", post_create=("env >$OUT/set-up-env",))
    lines: list[str] = []
    await stage.checks.run(replace(spec, env={**spec.env, "NAME": "value"}), lines.append)
    assert "NAME=value" in lines
    assert not [line for line in [*lines, *stage.lines("set-up-env")] if "SOME_TOKEN" in line]


async def test_the_same_content_is_checked_once(stage: CheckStage) -> None:
    spec = stage.spec("echo x >>$OUT/runs; test -f a.txt")
    first = await stage.checks.run(spec)
    git(stage.repo, "commit", "-q", "--allow-empty", "-m", "same tree")
    second = await Checks(stage.home, stage.host).run(spec)
    assert (first.cached, second.cached) == (False, True)
    assert replace(second, cached=False) == first
    assert await stage.checks.stored_result(spec) == second
    assert len(stage.lines("runs")) == 1
    await stage.checks.run(spec, again=True)
    assert len(stage.lines("runs")) == 2
    await stage.checks.run(replace(spec, command=spec.command + " "))
    await stage.checks.run(replace(spec, name="other"))
    stage.commit({"a.txt": "two\n"})
    await stage.checks.run(spec)
    assert len(stage.lines("runs")) == 5


async def test_simultaneous_requests_share_one_run(stage: CheckStage) -> None:
    spec = stage.spec("echo x >>$OUT/runs; while [ ! -e $OUT/go ]; do sleep 0.01; done; echo end")
    lines: list[str] = []
    first = asyncio.create_task(stage.checks.run(spec))
    second = asyncio.create_task(stage.checks.run(spec, lines.append))
    await asyncio.to_thread(stage.until, lambda: bool(stage.lines("runs")))
    first.cancel()
    (stage.outside / "go").touch()
    assert (await second).state == "success"
    assert lines == ["end"]
    assert len(stage.lines("runs")) == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_two_commands_with_the_same_name_have_separate_results(stage: CheckStage) -> None:
    commands = ("sleep 0.1; exit 3", "sleep 0.1; exit 4")
    results = await asyncio.gather(*(stage.checks.run(stage.spec(command, parallel=2)) for command in commands))
    assert [result.exit_code for result in results] == [3, 4]


async def test_a_failure_is_summarized_by_its_relevant_lines(stage: CheckStage) -> None:
    stage.commit({"calc.py": "def test_total():\n    assert 2 == 3, 'sum'\n"})
    result = await stage.checks.run(
        stage.spec('for i in $(seq 500); do echo line $i; done; echo "$PWD/calc.py:2: error: sum"; echo bye; exit 2')
    )
    assert (result.state, result.exit_code) == ("failure", 2)
    head, *lines = result.summary.splitlines()
    assert head.endswith("ended with exit code 2")
    assert "calc.py:2: error: sum" in lines
    assert "line 3" not in lines
    cached = await stage.checks.stored_result(stage.spec(""))
    assert cached is None


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("no-such-program --x", 127, "a command was not found"),
        ("./a.txt", 126, "cannot be executed"),
        ("kill -SEGV $$", 139, "was killed by SIGSEGV"),
        ("kill -9 0", None, "was killed"),
    ],
)
async def test_results_unrelated_to_the_content_are_not_cached(
    stage: CheckStage, command: str, code: int | None, problem: str
) -> None:
    spec = stage.spec(command)
    result = await stage.checks.run(spec)
    assert (result.state, result.exit_code) == ("failure", code)
    assert problem in result.summary.splitlines()[0]
    assert await stage.checks.stored_result(spec) is None


SPAWNS_CHILDREN = (
    "trap '' TERM; sleep 300 & echo $! >>$OUT/pids; setsid sleep 300 & echo $! >>$OUT/pids;"
    " (setsid sh -c 'sleep 300 & echo $! >>$OUT/pids' &); wait; sleep 300"
)
"""Starts one child in its process group, one in a new session, and one that survives its parent."""


async def test_a_check_that_exceeds_its_timeout_is_killed(stage: CheckStage) -> None:
    result = await stage.checks.run(stage.spec(SPAWNS_CHILDREN, timeout=0.5))
    assert result.state == "timed_out"
    assert "did not finish within 0.5 s" in result.summary
    assert stage.alive("pids") == []
    assert await stage.checks.stored_result(stage.spec(SPAWNS_CHILDREN)) is None
    assert stage.checkout_names() == []


async def test_background_processes_of_a_check_are_killed_without_waiting(stage: CheckStage) -> None:
    result = await stage.checks.run(stage.spec("setsid sleep 300 & echo $! >$OUT/pids"))
    assert result.state == "success"
    assert result.seconds < 10
    assert stage.alive("pids") == []


async def test_cancelling_a_check_kills_everything_it_started(stage: CheckStage) -> None:
    spec = stage.spec(SPAWNS_CHILDREN)
    trees: list[str] = []
    task = asyncio.create_task(stage.checks.run(spec, started=trees.append))
    await asyncio.to_thread(stage.until, lambda: len(stage.lines("pids")) == 3)
    assert stage.checks.cancel("app", trees[0], "test")
    assert (await task).state == "cancelled"
    assert stage.alive("pids") == []
    assert await stage.checks.stored_result(spec) is None
    assert not stage.checks.cancel("app", trees[0], "test")
    task = asyncio.create_task(stage.checks.run(spec))
    await asyncio.to_thread(stage.until, lambda: len(stage.lines("pids")) == 6)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.alive("pids") == []
    assert stage.checkout_names() == []


async def test_the_limit_of_parallel_checks_is_kept(stage: CheckStage) -> None:
    command = (
        "mkdir $OUT/running.$$; ls -d $OUT/running.* | wc -l >>$OUT/seen;"
        " until grep -q 2 $OUT/seen; do sleep 0.01; done; sleep 0.1; rmdir $OUT/running.$$"
    )
    specs = [stage.spec(command, name=f"check {number}", parallel=2) for number in range(5)]
    results = await asyncio.gather(*(stage.checks.run(spec) for spec in specs))
    assert {result.state for result in results} == {"success"}
    assert max(int(line) for line in stage.lines("seen")) == 2


async def test_a_check_cancelled_while_it_waits_releases_its_slot(stage: CheckStage) -> None:
    first = asyncio.create_task(stage.checks.run(stage.spec("while [ ! -e $OUT/go ]; do sleep 0.01; done", name="a")))
    second = asyncio.create_task(stage.checks.run(stage.spec("touch $OUT/second", name="b")))
    third = asyncio.create_task(stage.checks.run(stage.spec("true", name="c")))
    await asyncio.to_thread(stage.until, lambda: bool(stage.checkout_names()))
    second.cancel()
    (stage.outside / "go").touch()
    assert [(await first).state, (await third).state] == ["success", "success"]
    assert not (stage.outside / "second").exists()


async def test_long_output_is_truncated(stage: CheckStage) -> None:
    checks = Checks(stage.home, stage.host, limits=Limits(log_head=100_000, log_tail=50_000))
    result = await checks.run(stage.spec("seq 1000000; echo 'error: at the end'; exit 1"))
    text = result.log.read_text()
    assert len(text) < 151_000
    assert text.startswith("1\n2\n")
    assert "MB of output left out here" in text
    assert text.endswith("1000000\nerror: at the end\n")
    assert "error: at the end" in result.summary


async def test_test_counts_are_read_from_new_junit_files_only(stage: CheckStage) -> None:
    report = "<testsuite>%s</testsuite>"
    stage.commit({"fixtures/junit.xml": report % ('<testcase name="f"/>' * 9)})
    command = f"printf '%s' '{report % ('<testcase/>' * 3)}' >junit-out.xml; echo '1 passed in 0.1s'"
    assert (await stage.checks.run(stage.spec(command))).tests == TestCounts(3, 0, 0, 3)
    assert (await stage.checks.run(stage.spec("echo '1 failed, 4 passed in 0.1s'"))).tests == TestCounts(4, 1, 0, 5)
    assert (await stage.checks.run(stage.spec("true"))).tests is None


async def test_failures_are_retried_and_reported_as_flaky_or_confirmed(stage: CheckStage) -> None:
    flaky = stage.spec("echo x >>$OUT/runs; [ $(wc -l <$OUT/runs) = 2 ] || { echo 'error: once'; exit 1; }")
    result = await run_confirmed(stage.checks, flaky)
    assert (result.state, result.runs) == ("flaky", 2)
    assert "error: once" in result.summary
    assert (await run_confirmed(stage.checks, flaky)).cached
    assert len(stage.lines("runs")) == 2
    broken = stage.spec("echo x >>$OUT/broken; exit 1", name="broken")
    assert (await stage.checks.run(broken)).runs == 1
    assert (await run_confirmed(stage.checks, broken)).state == "failure"
    assert (await run_confirmed(stage.checks, broken)).runs == 2
    assert len(stage.lines("broken")) == 2


async def test_failures_of_the_base_are_known_and_unrunnable_checks_have_no_result(stage: CheckStage) -> None:
    base = stage.commit({"broken": "yes\n"})
    head = stage.commit({"a.txt": "mine\n", "mine": "x\n"})
    cases = (
        ("test ! -e broken", "failure", 0, 1),
        ("test ! -e mine", "failure", 1, 0),
        ("no-such-program", "not_set_up", 0, 0),
        ("test ! -e mine || exit 1; no-such-program", "failure", 1, 0),
    )
    for command, state, new, known_count in cases:
        assessment = await assess(stage.checks, stage.spec(command, commit=head), base)
        assert (assessment.state, len(assessment.new), len(assessment.known_failures)) == (state, new, known_count), (
            command
        )


async def test_a_missing_commit_or_repository_is_not_found(stage: CheckStage, tmp_path: Path) -> None:
    for commit in ("0" * 40, "no-such-branch", "a\nb", "x\nHEAD", "--all", "", "HEAD:a.txt"):
        with pytest.raises(NotFound, match="has no commit"):
            await stage.checks.run(stage.spec("true", commit=commit))
    with pytest.raises(NotFound, match="is not there"):
        await stage.checks.run(stage.spec("true", repo=tmp_path / "nowhere"))


async def test_bare_repositories_and_unusual_check_names_work(stage: CheckStage, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(stage.repo), "bare.git")
    result = await stage.checks.run(stage.spec("test -f a.txt", repo=tmp_path / "bare.git", name="../../über all"))
    assert result.state == "success"
    assert result.log.resolve().is_relative_to(stage.home.path / "checks" / "results" / "app" / result.tree)


async def test_a_repository_with_sha256_hashes_works(stage: CheckStage, tmp_path: Path) -> None:
    repo = tmp_path / "long"
    git(tmp_path, "init", "-q", "--object-format=sha256", str(repo))
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    result = await stage.checks.run(stage.spec("git log --oneline", repo=repo))
    assert result.state == "success", result.summary


async def test_a_full_disk_fails_checks_and_leaves_no_checkouts(stage: CheckStage, small_disk: Path) -> None:
    home = Home(small_disk / "ao")
    checks = Checks(home, stage.host, limits=Limits(kill_timeout=0.2))
    filling = await checks.run(stage.spec("head -c 5000000 /dev/zero >fill; code=$?; echo no room; exit $code"))
    assert (filling.state, filling.exit_code) == ("failure", 1)
    printing = await checks.run(stage.spec("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo error: x; exit 3"))
    assert (printing.state, printing.exit_code) == ("failure", 3)
    assert "could not be kept: No space left on device" in printing.summary
    stage.commit({"large.txt": "x" * 2_000_000})
    with pytest.raises(AoError, match=r"No space left|unable to write|could not be run"):
        await checks.run(stage.spec("true"))
    assert list((home.path / "checks" / "work").glob("*/*")) == []


async def test_an_unreadable_cached_result_is_ignored(stage: CheckStage) -> None:
    spec = stage.spec("true")
    file = (await stage.checks.run(spec)).log.with_suffix(".json")
    for text in ("", "{", "[]", '{"key": 1}', file.read_text().replace('"success"', '"timed_out"')):
        file.write_text(text)
        assert await stage.checks.stored_result(spec) is None


@pytest.mark.parametrize("replacement", ["mkfifo", "ln -s /dev/zero", "mkdir"])
async def test_a_command_that_replaces_the_checks_own_files_blocks_nothing(stage: CheckStage, replacement: str) -> None:
    """The replaced file is also found by the next check in the same folder."""
    (stage.outside / "mine").write_text("mine\n")
    command = f"rm ../exit; {replacement} ../exit; kill -9 $PPID"
    async with asyncio.timeout(60):
        result = await stage.checks.run(stage.spec(command, post_create=("true",)))
        assert (result.state, result.exit_code) == ("failure", None)
        await stage.checks.run(
            stage.spec("rm -rf ../exit; ln -s $OUT/mine ../exit; kill -9 $PPID", name="other", post_create=("true",))
        )
        result = await stage.checks.run(stage.spec("true", name="third", post_create=("true",)))
    assert result.state == "success" and (stage.outside / "mine").read_text() == "mine\n"
