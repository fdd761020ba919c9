"""The demo: three scripted agents on a small repository of their own. Needs no model, no key and no network.

    python -m agent_orchestrator.testing.demo

It tells what happens as it happens, and leaves the daemon running with one agent that waits for the person.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux

TASKS = {
    "greeting": (
        "Greet by name. [[progress: 1/3 reading]] [[sleep: 0.6]] [[write: greet.py|def greet(name):\\n    return f'Hello, {name}!'\\n]] "
        "[[progress: 2/3 editing]] [[sleep: 0.6]] [[commit: Greet by name]] [[progress: 3/3 done]] [[done: greet() takes a name]]"
    ),
    "database": (
        "Store the orders. [[progress: 1/2 looking around]] [[sleep: 0.8]] [[ask: Which database shall I use?]] "
        "[[write: store.md|Orders go to {answer}.\\n]] [[commit: Choose a store]] [[done: orders are stored]]"
    ),
    "changelog": (
        "Write the changelog. [[progress: 1/2 reading the log]] [[sleep: 1.2]] [[write: CHANGELOG.md|# Changes\\n\\n- first orders\\n]] "
        "[[commit: Begin a changelog]] [[progress: 2/2 committed]] [[usage: input=1200 output=300 usd=0.01 model=demo]] "
        "[[done: the changelog is begun]]"
    ),
}

TOLD = {
    "workspace-created": lambda data: f"has its own worktree on branch {data['branch']}",
    "agent-launched": lambda data: f"its agent runs in {data['handle']['runtime']} (pid {data['handle']['pid']})",
    "agent-progress": lambda data: f"{data.get('done')}/{data.get('total')} {data.get('step', '')}",
    "head-moved": lambda data: f"committed {data['head'][:8]}",
    "agent-ask": lambda data: f"asks you: {data['question']}",
    "agent-done": lambda data: f"is done: {data.get('summary', '')}",
}


def play(box: Sandbox, say: Callable[[str], None]) -> None:
    """Start the three agents and tell what they do until two are done and one asks."""
    box.repository("shop")
    say(f"A repository: {box.repo}")
    box.start(port=None)
    say("The daemon runs. Three tasks, three agents, at once:")
    for name, task in TASKS.items():
        box.request("POST", "/api/sessions", {"name": name, "title": task.partition(".")[0], "prompt": task})
    seen, end = 0, time.monotonic() + 60
    while time.monotonic() < end:
        for event in box.request("GET", f"/api/events?after={seen}&limit=500")["events"]:
            seen = event["seq"]
            if line := _line(event):
                say(f"  {event['time'][11:19]}  {event['session']:<16} {line}")
        if sorted(session["status"] for session in box.sessions()) == ["idle", "idle", "needs_input"]:
            return
        time.sleep(0.05)
    raise TimeoutError("the demo did not end as it should; see the daemon's log")


def _line(event: dict[str, Any]) -> str:
    tell = TOLD.get(event["type"])
    return tell(event["data"]) if tell and event["session"] else ""


def farewell(box: Sandbox, say: Callable[[str], None]) -> None:
    """Where everything is, what to try next, how to end."""
    url = box.client().info()["url"]
    say("")
    say("Two are done, one waits for you. Try, in the repository:")
    say(f"  export AO_HOME={box.home.path}; cd {box.repo}")
    ao = Path(sys.executable).with_name("ao")
    say(f"  {ao} status")
    say(f"  {ao} answer shop-database PostgreSQL")
    say(f"  {ao} diff shop-greeting")
    say("")
    say("The daemon stays. End it and its agents, their work saved:")
    say(f"  AO_HOME={box.home.path} {ao} shutdown --sessions")
    say("")
    say(f"Dashboard: {url}")


def main() -> int:
    """Play the demo in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ao-demo-"))
    box = Sandbox(folder, "tmux" if have_tmux() else "process").__enter__()
    try:
        play(box, _print)
    except (TimeoutError, OSError) as error:
        sys.stderr.write(f"ao: the demo failed: {error}\n")
        box.clean_up()
        return 1
    except KeyboardInterrupt:
        box.clean_up()
        return 130
    farewell(box, _print)
    return 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
