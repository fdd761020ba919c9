"""A file system that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def sharing_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system whose files can share blocks."""
    image, place = tmp_path / "sharing.img", tmp_path / "sharing"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    for command in (["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("an XFS can only be made with xfsprogs, and mounted by root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
