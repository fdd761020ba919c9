"""`python -m tests.faults.mutations [NAME…]`: prove that each check of the simulator finds a bug planted in a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "agent_orchestrator"


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, and the check that must find it."""

    what: str
    edits: tuple[tuple[str, str, str], ...]
    """File, original text, replacement."""
    found_by: str
    kinds: str = "user-works"
    styles: str = "plain,local"
    rounds: int = 64


PLANTED_BUGS = {
    "no-rescue": PlantedBug(
        "a stopped session's workspace is removed without saving what is in it",
        (
            (
                "sessions/lifecycle/stop.py",
                "report = await site.rescue(spec)\n                kept, why = await self._remove(facts, spec)",
                "report = await site.stored_rescue(spec)\n                shutil.rmtree(spec.path)\n"
                "                await self.core.plugins.workspace_of(facts).remove(spec)",
            ),
            (
                "sessions/lifecycle/stop.py",
                "from dataclasses import asdict\n",
                "import shutil\nfrom dataclasses import asdict\n",
            ),
        ),
        "work is never lost",
    ),
    "believed": PlantedBug(
        "a message that was written counts as acknowledged",
        (
            (
                "core/fold/messages.py",
                'body.message, "delivered", event.time',
                'body.message, "acknowledged", event.time',
            ),
        ),
        "messages once",
        "kill-agent,kill-holder,kill-tmux",
    ),
    "dropped": PlantedBug(
        "what could not be written counts as recorded",
        (
            (
                "core/engine.py",
                "self._queued_appends[:0] = patient",
                "for job in patient:\n                job.result.done() or job.result.set_result([])",
            ),
        ),
        "states are true|did not come to rest|messages once|work is never lost",
        "disk-full,database-locked",
    ),
    "second-daemon": PlantedBug(
        "a daemon does not mind another one's lock",
        (
            (
                "daemon/__main__.py",
                "while (holder := _try_lock(file)) is not None:",
                "while (holder := None) is not None:",
            ),
        ),
        "one daemon",
        styles="plain",
    ),
    "into-the-dialog": PlantedBug(
        "messages are typed whether or not the agent waits on a permission dialog",
        (
            (
                "sessions/lifecycle/delivery.py",
                'if facts.activity.state == "blocked":\n            raise RetryLater(60.0',
                "if False:\n            raise RetryLater(60.0",
            ),
            ("sessions/lifecycle/delivery.py", "if blocked.search(screen):", "if False:"),
        ),
        "dialogs untouched",
        rounds=96,
    ),
    "left-standing": PlantedBug(
        "a landing moves the base and leaves the user's checkout of it as it was",
        (
            (
                "changes/merge/user_checkout.py",
                'from one commit to the other, or say what stands in the way."""\n',
                'from one commit to the other, or say what stands in the way."""\n        return None\n',
            ),
        ),
        "the user's own",
    ),
    "unchecked": PlantedBug(
        "the merge queue takes every commit for checked",
        (("changes/merge_queue/base_queue.py", "failed = await self._check(ticket, built, doubt)", "failed = ()"),),
        "landed as checked",
    ),
    "litter": PlantedBug(
        "the file with a message for tmux stays",
        (
            (
                "plugins/runtimes/tmux.py",
                "        finally:\n            single_use_files.remove_with_retry([file])",
                "        finally:\n            pass",
            ),
        ),
        "nothing left behind",
    ),
    "traceback": PlantedBug(
        "a full disk is a fault of the program",
        (("core/effects.py", "        error = resource_shortage(error) or error\n", ""),),
        "no fault logged",
        "disk-full,disk-read-only",
    ),
    "gap": PlantedBug(
        "the log's numbers leave one out",
        (
            (
                "core/engine.py",
                "self.seq += len(outcome.changes)\n",
                "self.seq += len(outcome.changes) + (self.seq > 60)\n",
            ),
        ),
        "the log is whole",
    ),
    "unheard": PlantedBug(
        "comments at the forge are not taken in",
        (
            (
                "changes/forge_sync/pull_request_events.py",
                "def _comment_event(comment: PullRequestComment, head: str) -> e.Body:\n",
                "def _comment_event(comment: PullRequestComment, head: str) -> e.Body:\n    return e.BaseMoved(head)\n",
            ),
        ),
        "comments heard",
        "webhooks-lost,forge-failing",
        "github",
    ),
}


def plant(bug: PlantedBug, folder: Path) -> None:
    """Copy the sources with the bug to a folder; exit if the bug does not fit the source."""
    shutil.copytree(PACKAGE, folder / "agent_orchestrator", ignore=shutil.ignore_patterns("__pycache__", "dist"))
    for name, old, new in bug.edits:
        path = folder / "agent_orchestrator" / name
        text = path.read_text()
        if old not in text:
            raise SystemExit(f"{name} has changed: the planted bug does not fit any more: {old!r}")
        path.write_text(text.replace(old, new, 1))


def is_found(name: str, bug: PlantedBug, seed: int) -> bool:
    """Play rounds with a planted bug, print the result, and return whether it was found."""
    with tempfile.TemporaryDirectory(prefix="ao-planted-") as folder:
        plant(bug, Path(folder))
        command = [sys.executable, "-m", "tests.faults.run", "--rounds", str(bug.rounds), "--seed", str(seed)]
        completed = subprocess.run(
            [*command, "--jobs", "2", "--kinds", bug.kinds, "--styles", bug.styles, "--until-wrong"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    wrong = [line.strip() for line in completed.stderr.splitlines() if "WRONG" in line]
    hits = [line for line in wrong if any(words in line for words in bug.found_by.split("|"))]
    sys.stdout.write(
        f"| {bug.found_by.replace('|', ' / ')} | {bug.what} | {(hits or wrong or ['NOT FOUND'])[0][:160]} |\n"
    )
    sys.stdout.flush()
    if not hits:
        sys.stderr.write(f"{name} was not found: {completed.stdout[-2000:]}{completed.stderr[-2000:]}\n")
    return bool(hits)


def main() -> int:
    """Try all planted bugs, or the named ones."""
    names = sys.argv[1:] or list(PLANTED_BUGS)
    results = [is_found(name, PLANTED_BUGS[name], seed=1) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
