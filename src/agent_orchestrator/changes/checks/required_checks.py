"""`RequiredChecks`: the checks that a session's change must pass: those of its project, and the one that verifies its fix."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.config.model import CheckSection
from agent_orchestrator.config.projects.project_settings import ProjectSettings
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fixes import Fix, FixGroup, FixRound

RUNS_PER_VERIFICATION = 4
"""How often a fix's tools may be run for one verification: a failure is confirmed, and compared with the base branch."""


class RequiredChecks:
    """Answers for each session, from the configuration in force and the facts."""

    def __init__(self, flow: Flow, home: Home, settings: ProjectSettings) -> None:
        self._flow = flow
        self._home = home
        self._settings = settings

    def for_session(self, facts: SessionFacts) -> dict[str, CheckSection]:
        """Return every check that a session's change must pass, by name; raise `Conflict` if its configuration could not be read."""
        return {**self._settings.checked_project(facts.project).ci, **self.fix_check(facts)}

    def fix_check(self, facts: SessionFacts) -> Mapping[str, CheckSection]:
        """Return the check that verifies a session's fix, by name, or an empty mapping: the base branch may fail this one."""
        fix = self._flow.home.fixes.get(facts.spec.group) if facts.spec.group else None
        round_and_group = fix.group_of(facts.id) if fix else None
        if fix is None or round_and_group is None:
            return {}
        fix_round, group = round_and_group
        project = self._settings.config.project(facts.project)
        settings = project.fix if project else None
        timeout = (settings.timeout if settings else 1800.0) * max(1, len(fix.tools)) * RUNS_PER_VERIFICATION + 60.0
        command = verification_command(verification_file(self._home, fix, fix_round.number, group.number))
        parallel = settings.parallel if settings else 1
        check = CheckSection(command=command, timeout=timeout, parallel=parallel, on="done")
        return {fix_check_name(fix, fix_round, group): check}


def fix_check_name(fix: Fix, fix_round: FixRound, group: FixGroup) -> str:
    """Return the name of the check that verifies the fix of a cause. Each cause has its own check, because two fixes may be the same."""
    return f"fix-{fix.id}-{fix_round.number}.{group.number}"


def fix_folder(home: Home, fix: Fix) -> Path:
    """Return the folder with the files of a fixing run."""
    return home.path / "fixes" / fix.id


def verification_file(home: Home, fix: Fix, round_number: int, group_number: int) -> Path:
    """Return the path of the file that says how one cause of a round is verified."""
    return fix_folder(home, fix) / f"round-{round_number}-cause-{group_number}.json"


def verification_command(file: Path) -> str:
    """Return the shell command that measures what a file asks for; nothing of the checkout is on its import path."""
    return shlex.join([sys.executable, "-P", "-m", "agent_orchestrator.fleet.fixes.measure", str(file)])
