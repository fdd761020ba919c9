"""`python -m tests.integration.rescue.mutations [NAME…]`: random workspaces notice each bug that is planted in a copy of the rescue."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.mutations import ROOT, PlantedBug, plant

RESTORE, SURVEY = "sessions/rescue/restore.py", "sessions/rescue/survey.py"
EXAMPLES = 200
TEST = "tests/integration/rescue/test_any_workspace.py"
FAILING_TEST = "any workspace comes back"


def _bug(description: str, file: str, before: str, after: str) -> PlantedBug:
    return PlantedBug(description, ((file, before, after),), FAILING_TEST)


PLANTED_BUGS = {
    "mode": _bug(
        "what was saved comes back without its mode", RESTORE, "        path.chmod(entry.mode)\n", "        pass\n"
    ),
    "index": _bug("the index is not brought back", RESTORE, 'if name != "HEAD":', 'if name not in ("HEAD", "index"):'),
    "absent": _bug("deleted files come back", RESTORE, "for name in manifest.absent:", "for name in ():"),
    "empty": _bug("empty folders are forgotten", RESTORE, "for name in manifest.empty:", "for name in ():"),
    "links": _bug(
        "a symlink comes back as a file",
        RESTORE,
        "path.symlink_to(os.fsdecode(blob.read_bytes()))",
        "shutil.copyfile(blob, path)",
    ),
    "stashes": _bug("stashes are forgotten", RESTORE, "if not manifest.stashes:", "if True:"),
    "hidden": _bug("files hidden from Git's status are not looked at", SURVEY, "survey.hidden += present", "pass"),
    "nested": _bug("repositories within are not seen", SURVEY, 'if folder and ".git" in names:', "if False:"),
    "named": _bug(
        "ignored files that `copy` names are left behind",
        SURVEY,
        "if is_ignored and kept and not (top and _has_same_content(path, top / name)):",
        "if False:",
    ),
    "states": _bug(
        "an unfinished merge or rebase is forgotten", SURVEY, "for folder in _STATE_FOLDERS:", "for folder in ():"
    ),
    "sparse": _bug("a sparse checkout is none any more", SURVEY, '        "config.worktree",\n', ""),
    "left-out": _bug(
        "a sparse checkout comes back whole", RESTORE, "        await _remove_sparse_files(git, saved.manifest)\n", ""
    ),
    "detached": _bug(
        "commits that no branch has are left to the garbage collection",
        SURVEY,
        "snapshot.unreachable = [sha for sha in candidates if sha in loose]",
        "snapshot.unreachable = []",
    ),
    "submodules": _bug("a submodule that was filled stays empty", SURVEY, "survey.filled.append(path)", "continue"),
    "submodules-work": _bug(
        "a submodule's own commits keep no workspace",
        SURVEY,
        "survey.unsafe += await _submodule(survey.git.host, root / path, path)",
        "pass",
    ),
    "endings": _bug("an unchanged file counts as changed for its line endings", RESTORE, "if wrongly:", "if False:"),
}


def is_detected(name: str, bug: PlantedBug) -> bool:
    """Return whether the random workspaces detect a planted bug."""
    with tempfile.TemporaryDirectory(prefix="ao-planted-") as folder:
        plant(bug, Path(folder))
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", TEST],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder, "AO_RESCUE_EXAMPLES": str(EXAMPLES)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    error_lines = [line.strip() for line in result.stdout.splitlines() if line.startswith("E ")]
    is_noticed = result.returncode == 1 and bool(error_lines)
    sys.stdout.write(f"| {name} | {bug.what} | {error_lines[0][:160] if is_noticed else 'NOT FOUND'} |\n")
    sys.stdout.flush()
    return is_noticed


def main() -> int:
    """Plant all bugs, or the named ones, and return the exit code."""
    names = sys.argv[1:] or list(PLANTED_BUGS)
    undetected = [name for name in names if not is_detected(name, PLANTED_BUGS[name])]
    return 1 if undetected else 0


if __name__ == "__main__":
    sys.exit(main())
