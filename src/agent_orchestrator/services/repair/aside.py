"""What a repair found and did, and the folder in which everything that it changed is kept as it was."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.home import Home


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `state`: `ok`, `repaired`, `damaged` (it would be repaired), `warning` or `failed`."""

    name: str
    state: str
    detail: str
    remedy: str | None = None

    def json(self) -> dict[str, Any]:
        """As `ao doctor` shows it."""
        return asdict(self)


@dataclass(slots=True)
class Repair:
    """One repair of a home."""

    home: Home
    dry: bool = False
    findings: list[Finding] = field(default_factory=list)
    folder: Path = field(init=False)
    """Where what is changed is kept: `$AO_HOME/damaged/<time>`; made with the first thing that is put there."""

    def __post_init__(self) -> None:
        self.folder, number = self.home.path / "damaged" / time.strftime("%Y%m%d-%H%M%S", time.gmtime()), 1
        while self.folder.exists():
            number += 1
            self.folder = self.folder.with_name(f"{self.folder.name[:15]}-{number}")

    def tell(self, name: str, state: str, detail: str, remedy: str | None = None) -> None:
        """Remember what was found."""
        self.findings.append(Finding(name, state, detail, remedy))

    def mend(self, name: str, wrong: str, done: str) -> bool:
        """Tell what is wrong and what is done about it; true if it is to be done now."""
        self.tell(name, "damaged" if self.dry else "repaired", f"{wrong}: {done}")
        return not self.dry

    def keep(self, path: Path) -> Path:
        """A copy of a file or folder as it is, beside all others that this repair changes."""
        kept = self._place(path)
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, kept, symlinks=True)
        else:
            shutil.copy2(path, kept, follow_symlinks=False)
        return kept

    def put_aside(self, path: Path) -> None:
        """Take a file or folder away; it is kept."""
        path.rename(self._place(path))

    def note(self, name: str, text: str) -> None:
        """Keep what is no file of its own."""
        with self._place(self.home.path / name).open("a") as file:
            file.write(text)

    def _place(self, path: Path) -> Path:
        inside = path.is_relative_to(self.home.path)
        relative = path.relative_to(self.home.path) if inside else Path("elsewhere", *path.absolute().parts[1:])
        place = self.folder / relative
        for folder in (self.folder.parent, self.folder, place.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1
        while os.path.lexists(place):
            place, number = place.with_name(f"{relative.name}.{number}"), number + 1
        return place

    @property
    def kept(self) -> Path | None:
        """Where what was changed is, if anything was."""
        return self.folder if self.folder.is_dir() else None
