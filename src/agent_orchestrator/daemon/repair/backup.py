"""What a repair found and did, and the folder in which everything that it changed is kept as it was."""

from __future__ import annotations

import errno
import os
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import copy_some
from agent_orchestrator.base.home import Home

ROOM, NAMES = 256 << 20, 10_000
"""Bytes and files that are kept of a folder in which an agent writes."""
_FEW = 5


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

    def keep(self, path: Path) -> None:
        """A copy of a file of ours as it is, beside all others that this repair changes."""
        shutil.copy2(path, self._place(path), follow_symlinks=False)

    def keep_some(self, path: Path) -> None:
        """The same of a file or folder that an agent may have filled: as much as can be of use."""
        if left_out := copy_some(path, self._place(path), ROOM, NAMES):
            few = ", ".join(str(one) for one in left_out[:_FEW]) + (" …" if len(left_out) > _FEW else "")
            text = f"there is no copy of {few}: too large, too many, or no plain files"
            self.tell("kept", "warning", text, f"look at {path}")

    def put_aside(self, path: Path) -> None:
        """Take a file or folder away; it is kept, beside where it was if the home is on another file system."""
        try:
            path.rename(self._place(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            beside = path.with_name(f"damaged-{self.folder.name}")
            beside.mkdir(mode=0o700, exist_ok=True)
            path.rename(_free(beside / path.name))
            self.tell("kept", "repaired", f"{path} is on another file system than {self.home.path}: it is in {beside}")

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
        return _free(place)

    @property
    def kept(self) -> Path | None:
        """Where what was changed is, if anything was."""
        return self.folder if self.folder.is_dir() else None


def _free(place: Path) -> Path:
    """A place that nothing has yet."""
    name, number = place.name, 1
    while os.path.lexists(place):
        place, number = place.with_name(f"{name}.{number}"), number + 1
    return place
