"""Scenarios that are played while the daemon is killed: the commands of a person, and what must be true in the end.

The end is compared with evidence that the daemon did not write: the agents' log, Git's history, files and processes.
`stage.py` plays them, `scenario.py` is their base class, `forge.py` has those at a forge.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.scenarios.changes import MergeScenario, ReviewScenario, StackedScenario
from tests.faults.scenarios.rules import AgentReviewScenario, CommandScenario, SpawnScenario
from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.sessions import AnswersScenario, MessagesScenario, RestoreScenario, TypedScenario

SCENARIOS: dict[str, Callable[[str], Scenario]] = {
    "messages": MessagesScenario,
    "typed": TypedScenario,
    "landing": MergeScenario,
    "review": ReviewScenario,
    "life": RestoreScenario,
    "answers": AnswersScenario,
    "command": CommandScenario,
    "spawn": SpawnScenario,
    "judged": AgentReviewScenario,
    "stacked": StackedScenario,
}
