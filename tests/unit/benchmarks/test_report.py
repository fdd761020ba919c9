"""Results of a run: the table, JSON that can be read back, the generated part of a page, and the exit status."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import plots, report
from benchmarks.__main__ import main
from benchmarks.measure import (
    TABLE_HEAD,
    Case,
    Duel,
    Figure,
    Growth,
    Result,
    SkippedResult,
    format_number,
    quartiles,
    ratios,
    time_in_turns,
)

FAST = Figure("spawn ÷ bare", 1.5, 3, stretch=1.7, spread=(1.4, 1.6), note="90 ms ÷ 60 ms", why="Git twice")
SHORT = Figure("send ÷ bare", 1.2, 1.3, stretch=1.1, note="0.7 s", why="0.1 s is the store: `commit`")
SLOW = Figure("exit → shown", 0.7, 0.5, "s", stretch=0.1, why="it looks once a second")
MANY = Figure("requests", 5200, 1500, "a second", at_least=True, stretch=5000)
FLAT = Growth("one spawn", "sessions", [(1, 0.1), (20, 0.1), (200, 0.11)], "s", "constant")
STEEP = Growth("list", "sessions", [(1, 1.0), (10, 100.0), (100, 10000.0)], "ms", "linear")
AHEAD = Duel("send → received", 0.7, "other", 2.8)
BEHIND = Duel("cold start", 0.2, "other", 0.1)
NEVER = Duel("exit → shown", 0.1, "other", None)
ABSENT = SkippedResult("another", "it cannot be installed")
ALL: list[Result] = [FAST, SHORT, SLOW, MANY, FLAT, STEEP, AHEAD, BEHIND, NEVER, ABSENT]


def playing(*results: Result) -> dict[str, Case]:
    def case(folder: Path) -> Iterator[Result]:
        assert folder.is_dir()
        yield from results

    return {"one": case}


def cells(result: Result) -> list[str]:
    columns = [cell.strip() for cell in result.row().split("|")[1:-1]]
    assert len(columns) == len(TABLE_HEAD.splitlines()[0].split("|")) - 2
    return columns


def test_a_row_shows_the_figure_its_limit_and_its_stretch_goal() -> None:
    assert cells(FAST) == ["spawn ÷ bare", "1.5 ×", "1.4 – 1.6", "≤ 3 ×", "≤ 1.7", "yes", "90 ms ÷ 60 ms"]
    assert cells(MANY)[1:6] == ["5,200 a second", "", "≥ 1,500 a second", "≥ 5,000", "yes"]


def test_a_missed_stretch_goal_shows_its_reason() -> None:
    assert cells(SHORT)[5:] == ["yes, not stretch", "0.7 s; 0.1 s is the store: `commit`"]
    assert cells(SLOW)[5:] == ["**no**", "it looks once a second"]


def test_a_growth_row_shows_its_fit_its_exponent_and_its_points() -> None:
    row = cells(FLAT)
    assert row[0] == "one spawn, growth"
    assert row[1].endswith("· n s")
    assert row[3:6] == ["constant", "", "yes"]
    assert row[6].startswith("n sessions, as n^0.0")
    assert "200: 0.11" in row[6]
    assert cells(STEEP)[5] == "**no**"
    assert "n^2.00" in cells(STEEP)[6]


def test_a_peer_without_a_value_loses_and_a_faster_one_wins() -> None:
    assert cells(AHEAD) == [
        "send → received: other ÷ ours", "4 ×", "", "ahead", "≥ 4", "yes", "2.8 s ÷ 0.7 s",
    ]  # fmt: skip
    assert cells(NEVER)[1:] == ["∞ ×", "", "ahead", "≥ 4", "yes", "never ÷ 0.1 s"]
    assert cells(BEHIND)[5] == "**no**"
    assert not Duel("x", None, "other", None).holds, "what we never do is lost, too"


def test_zero_against_a_positive_cost_is_an_infinite_ratio() -> None:
    assert math.isinf(Duel("calls", 0, "other", 1000).ratio)
    level = Duel("calls", 0, "other", 0)
    assert (level.holds, level.stretches) == (True, True)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0325, "0.0325"), (0.00002, "0.00002"), (1, "1"), (2.4, "2.4"), (12.345, "12.3"), (100, "100"), (11080.4, "11,080")],
)  # fmt: skip
def test_numbers_have_three_digits_and_thousands_separators(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_pipe_in_a_note_is_escaped() -> None:
    assert "a \\| b" in Figure("x", 1, 2, note="a | b").row()


def test_medians_and_quartiles_of_alternating_measurements() -> None:
    order: list[str] = []
    rows = time_in_turns(3, lambda: order.append("ours"), lambda: order.append("bare"))
    assert order == ["ours", "bare"] * 3
    assert [len(row) for row in rows] == [3, 3]
    assert quartiles([5, 1, 2, 4, 3]) == (2, 4)
    assert quartiles([7]) == (7, 7)
    assert ratios([2, 4, 6], [1, 2, 2]) == (2, (2, 2.5))


def test_json_holds_the_whole_run_and_can_be_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["--json", str(file)], playing(*ALL), {}) == 1
    document = json.loads(file.read_text())
    assert set(document) == {"begun", "seconds", "machine", "versions", "missed", "short", "cases"}
    assert set(document["machine"]) == {"cores", "processor", "memory", "system"}
    assert document["versions"]["Python"]
    assert document["missed"] == ["exit → shown", "list", "cold start: other ÷ ours"]
    assert document["short"] == ["send ÷ bare"]
    results = document["cases"][0]["results"]
    assert results[4]["fit"]["exponent"] == pytest.approx(0.016, abs=0.01)
    assert (results[8]["theirs"], results[8]["ratio"]) == (None, "inf")
    assert document["cases"][0]["load"] >= 0
    restored = report.from_json(file.read_text())
    assert restored.results == ALL
    assert json.loads(report.to_json(restored)) == document
    capsys.readouterr()
    assert main(["--from", str(file), "--markdown", str(tmp_path / "again.md")], {}, {}) == 1
    assert "missed: exit → shown, list" in capsys.readouterr().out
    assert SLOW.row() in (tmp_path / "again.md").read_text()


def test_a_figure_of_nan_is_missed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert main(["--json", str(file)], playing(Figure("x", math.nan, 1)), {}) == 1
    assert math.isnan(report.from_json(file.read_text()).results[0].value)  # type: ignore[union-attr]


def test_a_run_that_misses_nothing_exits_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], playing(FAST, SHORT, FLAT, AHEAD, NEVER, ABSENT), {}) == 0
    printed = capsys.readouterr().out
    assert TABLE_HEAD in printed
    assert FAST.row() in printed
    assert "as it must be, short of stretch: send ÷ bare" in printed
    assert "missed" not in printed


def test_a_case_that_raises_is_missed_and_the_others_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(folder: Path) -> Iterator[Result]:
        yield FAST
        raise RuntimeError(f"nobody answers\nin {folder}")

    assert main([], {"broken": broken, **playing(MANY)}, {}) == 1
    printed = capsys.readouterr()
    assert "missed: broken (failed: RuntimeError: nobody answers)" in printed.out
    assert FAST.row() in printed.out
    assert MANY.row() in printed.out
    folder = Path(printed.err.partition("in /")[2].splitlines()[0])
    assert not Path("/" + str(folder)).exists()


def test_cases_are_selected_by_name_also_additional_ones(capsys: pytest.CaptureFixture[str]) -> None:
    more = {"other": playing(MANY)["one"]}
    assert main(["other"], playing(SLOW), more) == 0
    assert main(["nonsense"], playing(SLOW), more) == 2
    assert "no case is named nonsense; there are one, other" in capsys.readouterr().err


def test_only_the_part_of_a_page_between_its_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"# Before\n\n{report.BEGIN}\noutdated\n{report.END}\n\n# After\n")
    run = report.BenchmarkRun("2026-01-01", report.machine(), {}, [report.CaseResult("one", 0.5, 1.0, [FAST])])
    report.write_page(page, run, [tmp_path / "docs" / "pictures" / "bench-growth.png"])
    once = page.read_text()
    assert once.startswith(f"# Before\n\n{report.BEGIN}\n")
    assert once.endswith(f"{report.END}\n\n# After\n")
    assert FAST.row() in once
    assert "![Growth](pictures/bench-growth.png)" in once
    assert "outdated" not in once
    report.write_page(page, run, [tmp_path / "docs" / "pictures" / "bench-growth.png"])
    assert page.read_text() == once
    page.write_text("# No marks\n")
    with pytest.raises(ValueError, match=r"page\.md needs the lines"):
        report.write_page(page, run, [])


def test_without_matplotlib_the_plots_are_left_out_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "missing_requirement", lambda: "there is no matplotlib")
    assert main(["--plots", str(tmp_path / "plots")], playing(FAST), {}) == 0
    assert "plots are left out: there is no matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "plots").exists()


def test_plots_are_made_for_the_figures_that_exist(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(["--plots", str(tmp_path / "all")], playing(*ALL), {}) == 1
    assert {path.name for path in (tmp_path / "all").iterdir()} == {
        "bench-figures.png", "bench-growth.png", "bench-peers.png",
    }  # fmt: skip
    assert main(["--plots", str(tmp_path / "few")], playing(FLAT), {}) == 0
    assert [path.name for path in (tmp_path / "few").iterdir()] == ["bench-growth.png"]
