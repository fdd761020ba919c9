"""Check that the wheel is reproducible byte for byte: `python -m tests.supply.wheel`.

It is built twice, in folders with different names, with files of different ages and modes, in different time zones and locales; then
its content is checked.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIFFERENT = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1", "HOME": "/nonexistent"},
    {"TZ": "Pacific/Auckland", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)


def copy_sources(folder: Path, age: float, umask: int) -> None:
    """Copy the sources, with other file times and modes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod((0o777 if os.access(source, os.X_OK) else 0o666) & ~umask)
            os.utime(target, (time.time() - age,) * 2)
    shutil.copytree(
        ROOT / "dashboard" / "node_modules", folder / "dashboard" / "node_modules", symlinks=True, copy_function=_linked
    )
    (folder / "dashboard" / "node_modules" / ".package-lock.json").touch()
    (folder / "src" / "agent_orchestrator" / "__pycache__").mkdir()
    (folder / "src" / "agent_orchestrator" / "__pycache__" / "stale.cpython-311.pyc").write_bytes(b"x")


def _linked(source: str, target: str) -> None:
    """Link a file that is not changed, or copy it."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def build_wheel(folder: Path, env: dict[str, str]) -> Path:
    """Build the wheel in a folder with `make wheel` and return its path."""
    done = subprocess.run(
        ["make", "--no-print-directory", "wheel", f"VENV={Path(sys.executable).parent.parent}", "SETUP="],
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"the wheel could not be built in {folder}:\n{done.stdout[-3000:]}")
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def content_problems(wheel: Path, *folders: Path) -> list[str]:
    """Return the problems of a wheel's content."""
    problems = []
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        required = (
            "agent_orchestrator/py.typed",
            "agent_orchestrator/config/prices.json",
            "agent_orchestrator/server/dist/index.html",
        )
        problems += [f"{name} is missing" for name in required if name not in names]
        problems += (
            [] if any(re.search(r"dist-info/licenses/LICENSE$", name) for name in names) else ["LICENSE is missing"]
        )
        manual = "data/share/man/man1/ao.1"
        problems += [] if any(name.endswith(manual) for name in names) else [f"{manual} is missing"]
        problems += [
            f"{name} does not belong there"
            for name in names
            if re.search(r"\.pyc$|__pycache__|^tests/|node_modules|(^|/)test_[^/]*\.py$", name)
        ]
        unexpected_folders = {name.partition("/")[0] for name in names if not name.startswith("agent_orchestrator")}
        problems += [f"{name} does not belong there" for name in unexpected_folders]
        for name in names:
            content = file.read(name)
            for path in (ROOT, Path.home(), *folders):
                if len(str(path)) > 5 and str(path).encode() in content:
                    problems.append(f"{name} names {path}")
        problems += [
            f"{entry.filename} has mode {entry.external_attr >> 16:o}"
            for entry in file.infolist()
            if (entry.external_attr >> 16) & 0o022
        ]
    return problems


def main() -> int:
    """Build the wheel twice, compare both, check the content, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        places = (Path(folder) / "one", Path(folder) / "a folder with another name" / "two")
        for place, age, umask in zip(places, (0.0, 40_000_000.0), (0o022, 0o077), strict=True):
            copy_sources(place, age, umask)
        wheels = [build_wheel(place, env) for place, env in zip(places, DIFFERENT, strict=True)]
        digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
        wrong = content_problems(wheels[0], *places)
        if digests[0] != digests[1]:
            wrong += differences(*wheels)
        for line in wrong:
            sys.stdout.write(f"{line}\n")
        size = wheels[0].stat().st_size
        sys.stdout.write(f"{wheels[0].name}: {size} bytes, sha256 {digests[0]}\n")
    return 1 if wrong else 0


def differences(first: Path, second: Path) -> list[str]:
    """Return the files that differ between two wheels."""
    with zipfile.ZipFile(first) as a, zipfile.ZipFile(second) as b:
        left, right = ({info.filename: info for info in file.infolist()} for file in (a, b))
        names = sorted(name for name in left.keys() | right.keys() if name not in left or name not in right)
        names += [name for name in left.keys() & right.keys() if a.read(name) != b.read(name)]
        names += [name for name in left.keys() & right.keys() if left[name].external_attr != right[name].external_attr]
    return [f"{name} is not the same in both" for name in names] or ["the wheels differ in their order or times"]


if __name__ == "__main__":
    sys.exit(main())
