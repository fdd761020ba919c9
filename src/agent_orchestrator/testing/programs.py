"""Programs that only write down how they were called: stand-ins for those that a test must not start, or that are not here.

programs = Programs(tmp_path, "kitty", "wezterm")
await Kitty({}, programs.host).open(window)
assert programs.started() == [["kitty", "--title", …]]
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from agent_orchestrator.base.host import LocalHost

_SCRIPT = """#!/bin/sh
record="{folder}/calls/$(date +%s%N).$$"
{{ printf '%s\\0' "{name}"; for word in "$@"; do printf '%s\\0' "$word"; done; }} > "$record.new"
mv "$record.new" "$record"
{then}
"""


class Only(LocalHost):
    """This machine, with no programs but those of one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def which(self, program: str, path: str | None = None) -> str | None:
        """Where a program of the folder is."""
        return shutil.which(program, path=path or str(self._folder))


class Programs:
    """A folder of such programs."""

    def __init__(self, folder: Path, *names: str, then: Mapping[str, str] | None = None) -> None:
        """`then`: what a program does after it has written itself down, in shell: `echo 7`, `exit 1`, `exec sleep 60`."""
        self.folder = folder / "programs"
        (self.folder / "calls").mkdir(parents=True, exist_ok=True)
        for name in names:
            file = self.folder / name
            after = (then or {}).get(name, "exit 0")
            file.write_text(_SCRIPT.format(folder=self.folder, name=name, then=after))
            file.chmod(0o755)
        self.host = Only(self.folder)
        """Finds these programs, and no others."""

    def started(self, count: int = 1, within: float = 60.0) -> list[list[str]]:
        """How they were called, in order, the program's name first; waits until so many were."""
        until = time.monotonic() + within
        while len(found := self._calls()) < count and time.monotonic() < until:
            time.sleep(0.01)
        return found

    def _calls(self) -> list[list[str]]:
        files = (file for file in (self.folder / "calls").iterdir() if file.suffix != ".new")
        return [file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1] for file in sorted(files)]
