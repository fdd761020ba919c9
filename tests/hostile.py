"""Hostile file system structures that an agent could create."""

from __future__ import annotations

import os
from pathlib import Path


def create_nested_folders(folder: Path, depth: int) -> None:
    """Create nested folders. More than a thousand of them must be removed by `rm`, because pytest cannot."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
