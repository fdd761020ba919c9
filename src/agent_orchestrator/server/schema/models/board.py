"""The models of the dashboard's answers: the board, a session's timeline and work, statistics, and the recap."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer
from agent_orchestrator.server.schema.models.merge_queue import QueueEntry
from agent_orchestrator.server.schema.models.messages import Question
from agent_orchestrator.server.schema.models.sessions import Session
from agent_orchestrator.server.schema.models.usage import UsageRow, Used


class PredictedConflict(Answer):
    """Another session that this one will conflict with."""

    session: str
    kind: Literal["text", "overlap"]
    files: list[str]


class BoardSession(Session):
    """A session with all that a board shows of it."""

    stack: str | None
    """The session whose branch it stands on."""
    held: int
    """Messages that wait for a person's word."""
    why: str | None
    conflicts: list[PredictedConflict] = Field(alias="collides")
    notes: list[str]
    last_output: str | None
    """Of an agent that ended."""
    says: str | None
    """The last line of what the agent says."""


class OverviewProject(Answer):
    """How a project is."""

    id: str
    name: str
    base: str | None
    base_state: Literal["green", "red", "running", "unknown"]
    base_failing: list[str]
    """The checks that fail on its base branch."""
    active: int
    limit: int | None
    sessions: int
    needs_you: int


class UsageLimit(Answer):
    """An account that has met its usage limit."""

    account: str
    until: str


class BudgetToday(Answer):
    """What a project may use today, and has used."""

    project: str
    unit: Literal["usd", "tokens"]
    spent: float
    budget: float


class Overview(Answer):
    """The fleet in one line."""

    version: str
    active: int
    """Agents at work."""
    limit: int | None
    """That may be at work at once, in all projects."""
    waiting: int
    """Sessions that wait to start."""
    projects: list[OverviewProject]
    limits: list[UsageLimit]
    today: Used
    budgets: list[BudgetToday]


class Live(Answer):
    """How things stand: all of it, or what changed since the frame before."""

    seq: int
    complete: bool
    sessions: list[BoardSession]
    questions: list[Question] | None
    queue: list[QueueEntry] | None
    overview: Overview | None
    touched: dict[str, list[str]]
    """Session → the types of its events since the frame before; under "" those of no session."""


class TimelineEntry(Answer):
    """One thing that happened to a session, in words."""

    seq: int
    at: str
    kind: Literal["seen", "decided", "sent", "acknowledged", "said", "did"]
    title: str
    detail: str | None
    trigger: str | None
    """The trigger of the rule that it belongs to."""
    message: str | None
    by: str
    """Who: `person`, `agent`, `daemon`, or another source."""


class Timeline(Answer):
    """What happened to a session, oldest first, and how it stands in one sentence."""

    sentence: str
    entries: list[TimelineEntry]


class Work(Answer):
    """Where a session's work is, and whether it is safe."""

    path: str | None
    branch: str
    base: str
    head: str | None
    pushed: str | None
    ahead: int | None
    """Commits that the base branch does not have."""
    uncommitted: list[str]
    rescues: list[str]
    ports: list[int]
    sentence: str


class UsagePoint(Used):
    """What was used up to a moment."""

    at: str


class UsageCourse(Answer):
    """What a session used as time went on, added up, and what of it by model."""

    points: list[UsagePoint]
    models: list[UsageRow]


class StatsDay(Used):
    """One day (UTC)."""

    day: str
    started: int
    """Sessions that were begun."""
    opened: int
    """Pull requests."""
    landed: int
    median_to_merge: float | None
    """Seconds from opening a pull request to its merge."""
    retries: dict[str, int]
    """Trigger → how often agents were given another try."""


class Stats(Answer):
    """How the work goes, day by day, the oldest first."""

    days: list[StatsDay]
    median_to_merge: float | None


class RecapLine(Answer):
    """One thing that happened, or several alike."""

    kind: Literal["merged", "asked", "failed", "restarted", "limits", "budgets", "bases", "opened", "slept"]
    text: str
    sessions: list[str]


class Recap(Answer):
    """What happened since a moment, the most important first."""

    since: str
    lines: list[RecapLine]
