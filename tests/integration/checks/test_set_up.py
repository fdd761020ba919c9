"""The project's set-up in checkouts: run once, kept unchanged, and nothing else kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import Limits
from tests.integration.checks.stage import CheckStage
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio

SET_UP = (
    "echo x >>$OUT/set-ups; mkdir -p node_modules/p d/empty; cat package-lock.json >node_modules/p/made || true",
    "echo changed >>a.txt; sleep 300 &",
)


async def test_the_set_up_runs_once_for_the_same_lock_files(stage: CheckStage) -> None:
    stage.commit({"package-lock.json": "1\n"})
    spec = stage.spec(
        "cat node_modules/p/made; cat a.txt; git status --porcelain | grep -v '??'; true", post_create=SET_UP
    )
    lines: list[str] = []
    result = await stage.checks.run(spec, lines.append)
    assert result.state == "success", result.summary
    assert lines[-2:] == ["1", "one"]
    stage.commit({"a.txt": "two\n"})
    lines.clear()
    await Checks(stage.home, stage.host).run(spec, lines.append)
    assert lines == ["1", "two"]
    assert len(stage.lines("set-ups")) == 1
    stage.commit({"package-lock.json": "2\n"})
    await stage.checks.run(spec, lines.append)
    assert lines[-2:] == ["2", "two"]
    assert len(stage.lines("set-ups")) == 2
    await stage.checks.run(replace(spec, post_create=(*SET_UP, "true")))
    assert len(stage.lines("set-ups")) == 3


async def test_only_the_set_up_of_an_earlier_check_is_kept(stage: CheckStage) -> None:
    listing = "find . -path ./.git -prune -o -print | sort; git config a.b; git log --oneline | wc -l"
    dirty = (
        "; echo x >drop; mkdir -p new/folder; echo x >new/folder/f; echo x >node_modules/drop; echo x >d/empty/drop;"
        " rm b.txt; echo x >>a.txt; ln -s / root; git config a.b c; git commit -qam x; touch .git/hooks"
    )
    listings: list[list[str]] = []
    for number in range(2):
        lines: list[str] = []
        spec = stage.spec(listing + dirty, name=f"n{number}", post_create=SET_UP)
        result = await stage.checks.run(spec, lambda line, lines=lines: lines.append(line))  # type: ignore[misc]
        assert result.state == "success", result.summary
        listings.append([line for line in lines if not line.startswith(("$", "cat:"))])
    assert listings[0] == listings[1]
    assert "./d/empty" in listings[0]
    assert len(stage.lines("set-ups")) == 1


@pytest.mark.parametrize(
    "harm", ["echo x >>node_modules/p/made", "rm -r node_modules", "rmdir d/empty", "chmod 700 node_modules/p/made"]
)
async def test_a_set_up_changed_by_a_check_is_repeated(stage: CheckStage, harm: str) -> None:
    await stage.checks.run(stage.spec(harm, post_create=SET_UP))
    result = await stage.checks.run(stage.spec("test -d d/empty && test ! -s node_modules/p/made", post_create=SET_UP))
    assert result.state == "success", result.summary
    assert len(stage.lines("set-ups")) == 2
    assert len(stage.checkout_names()) == 1


async def test_a_failing_set_up_fails_the_check_and_is_not_cached(stage: CheckStage) -> None:
    spec = stage.spec(
        "touch $OUT/ran", post_create=("echo first", "echo 'error: no network'; exit 4", "touch $OUT/third")
    )
    result = await stage.checks.run(spec)
    assert (result.state, result.exit_code) == ("failure", None)
    assert result.summary.splitlines()[0].startswith("the set-up `echo 'error")
    assert result.summary.splitlines()[0].endswith("ended with exit code 4")
    assert "error: no network" in result.summary.splitlines()
    assert list(stage.outside.iterdir()) == []
    assert stage.checkout_names() == []
    assert await stage.checks.stored_result(spec) is None


async def test_copies_and_symlinks_are_made_as_in_a_workspace(stage: CheckStage) -> None:
    (stage.repo / ".env").write_text("A=1\n")
    (stage.repo / "vendor").mkdir()
    (stage.repo / "vendor" / "lib").write_text("lib\n")
    spec = stage.spec("echo x >>$OUT/runs; cat .env vendor/lib; test -L vendor", copy=(".env",), symlinks=("vendor",))
    lines: list[str] = []
    assert (await stage.checks.run(spec, lines.append)).state == "success"
    assert lines == ["A=1", "lib"]
    assert (stage.repo / "vendor" / "lib").exists()
    assert (await stage.checks.run(spec)).cached
    (stage.repo / ".env").write_text("A=2\n")
    await stage.checks.run(spec, lines.append)
    assert lines[2:] == ["A=2", "lib"]


async def test_a_set_up_changed_with_an_old_timestamp_is_repeated(stage: CheckStage) -> None:
    spec = stage.spec("cat tool", post_create=("echo good >tool; touch -d 2020-01-01 tool; echo 1 >>$OUT/set-ups",))
    await stage.checks.run(replace(spec, command="echo evil >tool; truncate -s 5 tool; touch -d 2020-01-01 tool"))
    lines: list[str] = []
    await stage.checks.run(spec, lines.append)
    assert lines[-1] == "good" and stage.lines("set-ups") == ["1", "1"]


async def test_only_the_most_recently_used_checkouts_are_kept(stage: CheckStage) -> None:
    checks = Checks(stage.home, stage.host, limits=Limits(max_prepared=2))
    for number in (0, 1, 0, 2):
        spec = stage.spec("true", post_create=(f"echo {number} >>$OUT/set-ups",))
        await checks.run(spec, again=True)
    assert len(stage.checkout_names()) == 2
    await checks.run(replace(spec, post_create=("echo 0 >>$OUT/set-ups",)), again=True)
    assert stage.lines("set-ups") == ["0", "1", "2"]


async def test_parallel_checks_get_separate_checkouts(stage: CheckStage) -> None:
    command = "pwd >>$OUT/places; while [ $(wc -l <$OUT/places) -lt 2 ]; do sleep 0.01; done"
    specs = [stage.spec(command, name=name, post_create=(":",), parallel=2) for name in ("a", "b")]
    results = await asyncio.gather(*(stage.checks.run(spec) for spec in specs))
    assert [result.state for result in results] == ["success", "success"]
    assert len(set(stage.lines("places"))) == 2


async def test_a_change_cannot_provide_the_set_up_of_other_changes(stage: CheckStage) -> None:
    """Nor the set-up of its next commit, even through files that the set-up reads indirectly."""
    stage.commit({"package-lock.json": "1\n", "set-up.sh": "sh ./helper.sh\n", "helper.sh": "echo good >tool\n"})
    spec = stage.spec("cat tool", base="main", post_create=("sh ./set-up.sh",))

    async def check_output(files: dict[str, str]) -> str:
        lines: list[str] = []
        await stage.checks.run(replace(spec, commit=stage.commit(files)), lines.append)
        return lines[-1]

    git(stage.repo, "switch", "-qc", "sly")
    await check_output({"helper.sh": "echo evil >tool\n"})
    git(stage.repo, "switch", "-q", "main")
    assert await check_output({"a.txt": "another's\n"}) == "good"
    git(stage.repo, "switch", "-q", "sly")
    assert await check_output({"package-lock.json": "2\n"}) == "evil"
    assert await check_output({"helper.sh": "echo good >tool\n"}) == "good"
    assert len(stage.checkout_names()) == 3


async def test_a_set_up_modified_by_a_change_runs_for_that_change(stage: CheckStage) -> None:
    stage.commit({"set-up.sh": "sh ./helper.sh\n", "Makefile": "tool:\n\techo made >tool\n"})
    git(stage.repo, "switch", "-qc", "change")
    for files, command, expected in (
        ({"set-up.sh": "echo named >tool\n"}, "sh ./set-up.sh", "named"),
        ({"Makefile": "tool:\n\techo anew >tool\n"}, "make tool", "anew"),
        ({"set-up.sh": "sh ./helper.sh\n", "helper.sh": "echo mended >tool\n"}, "sh ./set-up.sh", "mended"),
    ):
        lines: list[str] = []
        spec = stage.spec("cat tool", base="main", post_create=(command,), commit=stage.commit(files))
        assert (await stage.checks.run(spec, lines.append)).state == "success", lines
        assert lines[-1] == expected
