"""An agent that logs what it does to a folder that survives its machine: the witness of the cluster tests.

It counts. Every number becomes a line of `work.txt`, every fifth one a commit; it continues from the number in its
workspace. Its log says, by a clock that all machines of a lab share, when it ran, what it committed, and which
messages it received, by its terminal or at its start. It acknowledges each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

WORK = Path("work.txt")
LOG = os.environ["LAB_LOG"]
SESSION = os.environ["AO_SESSION"]
GENERATION = int(re.search(r"spool\.(\d+)\.", os.environ["AO_SPOOL"])[1])  # type: ignore[index]
PACE = float(os.environ.get("LAB_PACE", "0.4"))


def log(kind: str, **data: object) -> None:
    """Append a record to the log."""
    record = {
        "kind": kind,
        "at": time.clock_gettime(time.CLOCK_BOOTTIME),
        "session": SESSION,
        "generation": GENERATION,
        "pid": os.getpid(),
        "machine": os.uname().nodename,
        **data,
    }
    descriptor = os.open(os.path.join(LOG, f"{SESSION}.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(record).encode() + b"\n")
    os.close(descriptor)


def report(event: str, **data: object) -> None:
    """Report an event to the daemon through the spool."""
    descriptor = os.open(os.environ["AO_SPOOL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps({"event": event, **data}).encode() + b"\n")
    os.close(descriptor)


def receive_message(text: str, *, at_start: bool = False) -> None:
    """Log and acknowledge a message; the text at its start may be the task, which is not a message."""
    message_id = ""
    for line in Path(os.environ["AO_INBOX"]).read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # an incomplete line
            sent = json.loads(line)
            if text == sent["text"] or (at_start and text.endswith(sent["text"])):
                message_id, text = sent["message"], sent["text"]
    if message_id or not at_start:
        log("message", text=text, message=message_id)
        report("ack", message=message_id)


def last_number(text: str) -> int:
    """Return the last number of a text, or 0."""
    lines = text.split()
    return int(lines[-1]) if lines else 0


def git(*argv: str) -> str:
    """Run Git in the workspace and return its output; failures are logged."""
    done = subprocess.run(["git", *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        log("trouble", argv=argv, error=done.stderr[-300:])
    return done.stdout.strip()


def main() -> int:
    """Count until standard input ends."""
    try:
        number = last_number(WORK.read_text())
    except OSError:
        number = 0
    title = git("log", "-1", "--format=%s")
    committed = last_number(title) if title.startswith("step ") else 0
    log("begin", found=number, committed=committed, head=git("rev-parse", "HEAD"))
    report("activity", state="active")
    receive_message(Path(os.environ["AO_TASK_FILE"]).read_text(encoding="utf-8").strip(), at_start=True)
    os.write(1, b"ready\n")
    due, typed = time.monotonic() + PACE, b""
    while True:
        log("beat")
        if select.select([0], [], [], 0.1)[0]:
            data = os.read(0, 65536)
            if not data:
                return 0
            typed += data
            while b"\n" in typed:
                line, _, typed = typed.partition(b"\n")
                receive_message(line.decode(errors="replace").strip())
        if time.monotonic() >= due:
            due = time.monotonic() + PACE
            number += 1
            with WORK.open("a") as file:
                file.write(f"{number}\n")
            log("wrote", number=number)
            if number % 5 == 0:
                git("add", "work.txt")
                git("commit", "-q", "-m", f"step {number}")
                log("committed", number=number, head=git("rev-parse", "HEAD"))


if __name__ == "__main__":
    sys.exit(main())
