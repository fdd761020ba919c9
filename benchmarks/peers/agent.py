"""The agent of all duels: it logs its start and the lines it reads, and prints that it is ready. `python -IS agent.py LOG READY`"""

import json
import os
import sys
import time


def main() -> None:
    """Log the start and each line of standard input."""
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(event: str, text: str = "") -> None:
        line = {"event": event, "at": time.monotonic(), "pid": os.getpid(), "text": text}
        os.write(log, (json.dumps(line) + "\n").encode())

    note("started")
    print(sys.argv[2], flush=True)
    for line in sys.stdin:
        note("heard", line)
        print(sys.argv[2], flush=True)


if __name__ == "__main__":
    main()
