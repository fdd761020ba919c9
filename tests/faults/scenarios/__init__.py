"""Scenarios that are played while the daemon is killed: the commands of a person, and what must be true in the end.

The end is compared with evidence that the daemon did not write: the agents' log, Git's history, files and processes.
`stage.py` plays them, `scenario.py` is their base class, `forge.py` has those at a forge.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.scenarios.changes import Merge, Review, Stacked
from tests.faults.scenarios.rules import Command, Reviewed, Spawned
from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.sessions import Answers, Life, Messages, Typed

SCENARIOS: dict[str, Callable[[str], Scenario]] = {
    "messages": Messages,
    "typed": Typed,
    "landing": Merge,
    "review": Review,
    "life": Life,
    "answers": Answers,
    "command": Command,
    "spawn": Spawned,
    "judged": Reviewed,
    "stacked": Stacked,
}
