"""A message left in an agent's input line, because Enter came too soon after it, is submitted again."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.plugins.test_own_agents import PLUGIN, PROGRAM

# An input line in which the first Enter after a text does nothing.
INPUT = """
import tty
tty.setcbreak(0)
record("idle")
text, ready = "", False
while key := sys.stdin.read(1):
    if key != "\\n": text += key
    elif not ready: ready = True
    else:
        turn(text)
        text, ready = "", False
    sys.stdout.write("\\r\\x1b[K> " + text)
    sys.stdout.flush()
"""

UNSENT = """
    def has_unsent_text(self, screen, text): return "> " + text in screen
"""


def test_enter_is_pressed_again_for_an_unsent_message(tmp_path: Path, runtime: str) -> None:
    program, plugin = tmp_path / "program.py", tmp_path / "own.py"
    program.write_text(PROGRAM.replace('for line in sys.stdin: turn(line.rstrip("\\n"))\n', INPUT))
    plugin.write_text(PLUGIN + UNSENT)
    with Sandbox(tmp_path / "box", runtime) as box:
        box.repository(
            config=f"plugins: [{{path: {plugin}}}]\ndefaults: {{agent: mine, runtime: {runtime}}}\n"
            f"agents: {{mine: {{tool: own, options: {{program: {program}}}}}}}\nprojects: {{app: {{path: .}}}}\n"
        )
        box.start()
        box.ao("new", "begin", "--name", "l")
        box.wait_until(lambda: box.session("l")["activity"] == "idle", "the first turn")
        sent = box.json("send", "l", "and now this")
        path = f"/api/sessions/l/messages/{sent['messageId']}"
        box.wait_until(lambda: box.request("GET", path)["state"] == "acknowledged", "the acknowledgement")
        acknowledgements = [event for event in box.events("l") if event["type"] == "agent-ack"]
        assert len(acknowledgements) == 1
