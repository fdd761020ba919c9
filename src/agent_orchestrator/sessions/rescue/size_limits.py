"""How large the files of a workspace may be to be saved."""

from __future__ import annotations

MAX_FILE_SIZE = 4 << 30
"""Maximum size in bytes of a file, or of a nested repository, that is saved; with a larger one the workspace must stay."""
MAX_TOTAL_SIZE = 4 * MAX_FILE_SIZE
"""Maximum size in bytes of all of them together."""
MAX_STATE_FILE_BYTES = 1 << 28
"""Maximum size in bytes of a file of Git's state, except its index."""
