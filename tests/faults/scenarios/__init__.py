"""What is done while the daemon is killed: one small story each, played by a person on the command line, and what must be true in the end.

Every end is compared with evidence that the daemon did not write: the agents' own log, Git's history, files and processes.
`stage.py` is where they are played, `scenario.py` what they have in common, `forge.py` those at a forge.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.scenarios.changes import Landing, Review, Stacked
from tests.faults.scenarios.rules import Command, Judged, Spawned
from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.sessions import Answers, Life, Messages, Typed

SCENARIOS: dict[str, Callable[[str], Scenario]] = {
    "messages": Messages,
    "typed": Typed,
    "landing": Landing,
    "review": Review,
    "life": Life,
    "answers": Answers,
    "command": Command,
    "spawn": Spawned,
    "judged": Judged,
    "stacked": Stacked,
}
