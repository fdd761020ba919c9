"""Writes what a container runs: a small shell script with the agent's whole environment and command, read once and removed.

So no variable and no prompt is on a command line, nor in what the engine reports about a container.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENGINE_VARIABLES = ("HOSTNAME", "HOME", "container", "PWD", "OLDPWD")
"""Variables that engines and shells set themselves."""


def script(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    started: Path,
    size: tuple[int, int],
    stdin: Path | None = None,
    before: Sequence[str] = (),
) -> str:
    """Return the script: mark that it runs, set the terminal's size, run `before`, become the agent.

    Variables of the image stay unless `env` sets them.
    """
    columns, rows = size
    exportable = {name: value for name, value in env.items() if _IDENTIFIER.fullmatch(name)}
    unexportable = [f"{name}={value}" for name, value in env.items() if name not in exportable]
    lines = [
        f": > {_quoted(str(started))}",
        f"stty cols {columns} rows {rows} 2>/dev/null",
        *before,
        *(f"export {name}={_quoted(value)}" for name, value in exportable.items()),
        *(f"unset {name}" for name in _ENGINE_VARIABLES if name not in env),
        " ".join(
            [
                "exec",
                *(["env", *map(_quoted, unexportable)] if unexportable else []),
                *map(_quoted, argv),
                *([f"<{_quoted(str(stdin))}"] if stdin else []),
            ]
        ),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return the text quoted for a shell."""
    return shlex.quote(text)
