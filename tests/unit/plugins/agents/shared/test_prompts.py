"""Detection of open prompts in a terminal's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.plugins.agents.shared.input_prompts import PromptLog, resolve_in_workspace

OPENS, CLOSES = "\x1b[?2004h", "\x1b[?2004l"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "terminal.log"
    path.touch()
    return path


def show(log: Path, text: str) -> None:
    with log.open("ab") as file:
        file.write(text.encode())


def test_a_prompt_is_open_between_its_two_switches(log: Path) -> None:
    prompts = PromptLog(log, 0)
    assert prompts.current() is None
    show(log, f"hello\r\n{OPENS}\x1b[0m> ")
    prompt = prompts.current()
    assert prompt is not None
    assert (prompt.start, prompt.text, prompt.before) == (7, "> ", "hello\n")
    show(log, f"typed\r\n{CLOSES}working")
    assert prompts.current() is None
    assert prompts.tail() == "working"
    show(log, f" hard{OPENS}> ")
    again = prompts.current()
    assert again is not None and again.start > prompt.start and again.before == "working hard"


def test_a_prompt_that_came_and_went_between_two_looks_is_closed(log: Path) -> None:
    prompts = PromptLog(log, 0)
    show(log, f"{OPENS}> quick\r\n{CLOSES}working")
    assert prompts.current() is None and prompts.has_prompted
    assert (prompts.last_prompt_start, prompts.tail()) == (0, "working")


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_switch_cut_in_two_is_seen(log: Path, cut: int) -> None:
    prompts = PromptLog(log, 0)
    show(log, "x" + OPENS[:cut])
    assert prompts.current() is None
    show(log, OPENS[cut:] + "> ")
    prompt = prompts.current()
    assert prompt is not None and (prompt.start, prompt.text) == (1, "> ")
    show(log, CLOSES[:cut])
    assert prompts.current() is not None
    show(log, CLOSES[cut:])
    assert prompts.current() is None


def test_a_long_log_is_read_from_its_last_switch(log: Path) -> None:
    show(log, f"{OPENS}> {CLOSES}" + "x" * 200_000 + OPENS + "> " + "y" * 100_000)
    prompts = PromptLog(log, 0)
    prompt = prompts.current()
    assert prompt is not None and prompt.start == len(f"{OPENS}> {CLOSES}") + 200_000
    assert prompt.text.startswith("> y")


def test_output_of_an_earlier_launch_does_not_count(log: Path) -> None:
    show(log, f"{OPENS}> killed at its prompt")
    size = log.stat().st_size
    prompts = PromptLog(log, size)
    assert prompts.current() is None and not prompts.has_prompted
    show(log, f"starting{OPENS}> ")
    prompt = prompts.current()
    assert prompt is not None and prompt.start == size + len("starting")


def test_a_turn_is_over_at_a_later_prompt_or_when_the_log_had_time_to_tell(log: Path) -> None:
    prompts = PromptLog(log, 0)
    show(log, f"{OPENS}> ")
    prompt = prompts.current()
    assert prompt is not None
    turn = prompts.turn(has_caught_up=True)
    assert not turn.is_ended_by(prompt, turn.undecided_until - 0.1) and turn.is_undecided(
        prompt, turn.undecided_until - 0.1
    )
    assert turn.is_ended_by(prompt, turn.undecided_until)
    show(log, f"text{CLOSES}work{OPENS}> ")
    later = prompts.current()
    assert later is not None and turn.is_ended_by(later, turn.undecided_until - 0.1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.py", "a.py"),
        ("src/../a.py", "a.py"),
        ("{workspace}/src/a.py", "src/a.py"),
        ("../other/a.py", "{parent}/other/a.py"),
        ("/etc/passwd", "/etc/passwd"),
        ("link/a.py", "{parent}/elsewhere/a.py"),
    ],
)
def test_a_path_is_relative_only_inside_the_workspace(tmp_path: Path, path: str, expected: str) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    parent = str(tmp_path.resolve())
    assert resolve_in_workspace(workspace, path.format(workspace=workspace)) == expected.format(parent=parent)
