"""An agent that does nothing with what it gets but writes it down: arguments, environment, every byte of its terminal.

It says to its spool whatever stands in the corpus, as an agent would that obeys strangers, and commits files with odd names.
"""

import json
import os
import subprocess
import sys
import tty
from pathlib import Path

corpus = [json.loads(line)["text"] for line in Path(sys.argv[1]).read_text().splitlines()]
folder = Path(sys.argv[2])
folder.mkdir(exist_ok=True)
launch = {"argv": sys.argv[3:], "env": dict(os.environ), "cwd": str(Path.cwd())}
(folder / "launch.new").write_text(json.dumps(launch))
(folder / "launch.new").replace(folder / "launch.json")
tty.setraw(0)
sys.stdout.write("\x1b[?2004h> ")
sys.stdout.flush()
if os.environ["AO_SESSION"].endswith("told"):
    for number, text in enumerate(corpus):
        name = "".join(each for each in text if each.isprintable() and each not in "/\0")[:40].strip()
        Path(f"file {number} {name}").write_text(text, errors="replace")
    subprocess.run(["git", "add", "-A"], check=True)
    for text in corpus:
        message = text.replace("\0", "").encode(errors="replace") or b"x"
        subprocess.run(["git", "commit", "-q", "--allow-empty", "-F", "-"], input=message[:3000] + b" .", check=False)
    with Path(os.environ["AO_SPOOL"]).open("a") as spool:
        for text in corpus:
            for report in (
                {"event": "progress", "done": 1, "total": 2, "step": text},
                {"event": "activity", "state": "active", "detail": text},
                {"event": text, "x": text},
                {"event": "usage", "model": text, "input": 1},
                {"event": "permission", "tool": text, "command": text, "reason": text},
                {"event": "turn", "text": text},
                {"event": "ask", "question": text},
                {"event": "reply", "text": text},
            ):
                spool.write(json.dumps(report) + "\n")
        spool.write(json.dumps({"event": "activity", "state": "active"}) + "\n")
        spool.write(json.dumps({"event": "done", "summary": corpus[0]}) + "\n")
with (folder / "terminal").open("ab", buffering=0) as log:
    while data := os.read(0, 65536):
        log.write(data)
