"""What a container runs: a small shell script with the agent's whole environment and command, read once and removed.

So no variable and no prompt is on a command line, nor in what the engine tells of a container.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_ENGINE = ("HOSTNAME", "HOME", "container", "PWD", "OLDPWD")
"""What engines and shells set by themselves."""


def script(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    started: Path,
    size: tuple[int, int],
    stdin: Path | None = None,
    before: Sequence[str] = (),
) -> str:
    """Say that it runs, set the terminal's size, run `before`, become the agent. Variables of the image stay where `env` has none."""
    columns, rows = size
    plain = {name: value for name, value in env.items() if _IDENTIFIER.fullmatch(name)}
    odd = [f"{name}={value}" for name, value in env.items() if name not in plain]
    lines = [
        f": > {_quoted(str(started))}",
        f"stty cols {columns} rows {rows} 2>/dev/null",
        *before,
        *(f"export {name}={_quoted(value)}" for name, value in plain.items()),
        *(f"unset {name}" for name in _OF_THE_ENGINE if name not in env),
        " ".join(
            [
                "exec",
                *(["env", *map(_quoted, odd)] if odd else []),
                *map(_quoted, argv),
                *([f"<{_quoted(str(stdin))}"] if stdin else []),
            ]
        ),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return shlex.quote(text)
