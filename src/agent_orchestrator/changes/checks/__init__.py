"""Local checks: a command run at an exact commit, in a clean checkout of its own, and what came of it. `spec.py` is what is asked for,
`runner.py` answers, using `checkout.py` (a folder with the commit and the project's set-up), `process.py` (the process and all it
starts), `log.py` (its output, bounded), `log_tail.py` (its output as it comes), `summary.py`, `junit.py` and `runners/` (what the output
means, test by test), `missing.py` (what the environment lacks) and `results.py` (what is remembered); `assessment.py` and `outcome.py` compare
a change with its base. Knows nothing of sessions, events or configuration: the caller says what to run, and decides what
follows.

    $AO_HOME/checks/results/<project>/<tree>/<name>.json, .log    what came of it
    $AO_HOME/checks/work/<project>/<digest>-<n>/                  a checkout: `tree/`, and our own files beside it
"""

from agent_orchestrator.changes.checks.assessment import Assessment, assess, judge
from agent_orchestrator.changes.checks.log_tail import follow
from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.ownership import owned_failures
from agent_orchestrator.changes.checks.results import Result
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits

__all__ = [
    "Assessment",
    "CheckSpec",
    "Checks",
    "Limits",
    "Result",
    "TestCounts",
    "assess",
    "follow",
    "judge",
    "owned_failures",
]
