"""Calls of a forge's own command line in what agents run."""

from __future__ import annotations

import pytest

from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        ("gh pr view 3", 1),
        ("cd x && gh pr checks 4 | head; glab mr list", 2),
        ("GH_TOKEN=x /usr/bin/gh api /user", 1),
        ('url="$(gh pr view 3 --json url)"', 1),
        ("if gh pr view; then gh pr merge; fi", 2),
        ("gh pr view\ngh run list", 2),
        ("echo 'gh pr view; gh pr view'", 0),
        ('git commit -m "use gh pr view; gh run list"', 0),
        ("gh --version; gh help; gh config get editor", 0),
        ("grep gh README.md; ghost run; ls gh", 0),
        ("", 0),
    ],
)
def test_calls(command: str, calls: int) -> None:
    assert forge_calls(command) == calls
