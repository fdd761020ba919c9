"""What a command says when it refuses: one line, what is wrong and what to do next, and no traceback."""

from __future__ import annotations

import subprocess


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> str:
    """The one line of a refusal, which must have this exit code and these words in it."""
    said = f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, said
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("ao: "), said
    assert "Traceback" not in said
    for word in words:
        assert word in lines[0], f"{word!r} is not in: {lines[0]}"
    return lines[0]
