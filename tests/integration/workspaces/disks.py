"""Fixtures with special file systems."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte."""
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield mount_point
    subprocess.run(["umount", "-l", str(mount_point)], check=True)


@pytest.fixture
def sharing_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system whose files can share blocks."""
    image, mount_point = tmp_path / "sharing.img", tmp_path / "sharing"
    mount_point.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    for command in (
        ["mkfs.xfs", "-q", "-m", "reflink=1", str(image)],
        ["mount", "-o", "loop", str(image), str(mount_point)],
    ):
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("an XFS can only be made with xfsprogs, and mounted by root")
    yield mount_point
    subprocess.run(["umount", "-l", str(mount_point)], check=True)
