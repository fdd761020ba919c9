"""Stand-ins for programs that a test must not start or that are not installed: they only record how they were called.

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


class FolderHost(LocalHost):
    """The local host, on which only the programs of one folder are found."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def which(self, program: str, path: str | None = None) -> str | None:
        """Return the path of a program in the folder, or None."""
        return shutil.which(program, path=path or str(self._folder))


class Programs:
    """A folder of stand-ins, and a host that finds only these."""

    def __init__(self, folder: Path, *names: str, then: Mapping[str, str] | None = None) -> None:
        """Create the programs; `then` maps a name to shell code that runs after recording: `echo 7`, `exit 1`, `exec sleep 60`."""
        self.folder = folder / "programs"
        (self.folder / "calls").mkdir(parents=True, exist_ok=True)
        for name in names:
            file = self.folder / name
            after = (then or {}).get(name, "exit 0")
            file.write_text(_SCRIPT.format(folder=self.folder, name=name, then=after))
            file.chmod(0o755)
        self.host = FolderHost(self.folder)
        """A host that finds these programs and no others."""

    def started(self, count: int = 1, within: float = 60.0) -> list[list[str]]:
        """Wait until `count` programs were started, or `within` seconds; return their command lines in order, the program's name first."""
        deadline = time.monotonic() + within
        while len(calls := self._read_calls()) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return calls

    def _read_calls(self) -> list[list[str]]:
        files = (file for file in (self.folder / "calls").iterdir() if file.suffix != ".new")
        return [file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1] for file in sorted(files)]
