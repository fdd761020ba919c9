"""What an agent can put in the daemon's way."""

from __future__ import annotations

import os
from pathlib import Path


def nested(folder: Path, depth: int) -> None:
    """Folders in folders. Where they are more than a thousand, whoever made them has to remove them by `rm`: pytest cannot."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
