"""The models of request bodies: validated here once, then passed on as records of the services."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from agent_orchestrator.base.text.text_trees import map_texts
from agent_orchestrator.changes.reviews import new_review
from agent_orchestrator.core.authors import HAS_WRITE_ACCESS, TextAuthor
from agent_orchestrator.core.fixes import FixRequest
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.text import replace_lone_surrogates
from agent_orchestrator.sessions.creation import new_session


class RequestBody(BaseModel):
    """A request's body: keys in camelCase, and no others than these."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_keys(cls, body: Any) -> Any:
        """Raise ValueError for a key that the model does not have, and replace lone surrogates in texts."""
        if isinstance(body, dict):
            allowed = [field.alias or name for name, field in cls.model_fields.items()]
            for key in body:
                if key not in allowed:
                    close_matches = difflib.get_close_matches(str(key), allowed, 1)
                    hint = f"did you mean {close_matches[0]}?" if close_matches else f"there are {', '.join(allowed)}"
                    raise ValueError(f"there is no key {str(key)[:80]!r}: {hint}")
        try:
            return map_texts(
                body, replace_lone_surrogates
            )  # a lone surrogate can be neither recorded nor passed to a program
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


class NewSession(RequestBody):
    """A session to be made."""

    project_id: str | None = Field(None, description="The project; without it, the one of the caller's folder.")
    issue: str | int | None = Field(None, description="`123`, `#123`, `GH-123`, `LIN-3` or a URL.")
    title: str | None = None
    prompt: str | None = Field(None, description="What the agent is to do; 1 MB at most.")
    agent: str | None = Field(None, description="A profile, else an agent.")
    model: str | None = None
    branch: str | None = Field(None, description="An existing branch is continued.")
    base: str | None = None
    name: str | None = None
    after: list[str] = Field([], description="Sessions that must be done before.")
    stack: bool = Field(
        False, description="Start on the branch of the session it comes after, and follow it when it lands."
    )
    pr: int | str | None = Field(None, description="A pull request to take over.")
    resume_id: str | None = Field(None, description="A conversation of the agent's, begun by hand, to go on with.")
    labels: list[str] = []
    priority: int | None = Field(None, ge=-1000, le=1000, description="Higher comes first.")
    runtime: str | None = None
    workspace: str | None = None
    node: str | None = None
    defer: bool = Field(False, description="The agent starts at its first message.")
    files: list[str] = Field([], description="Files that it is expected to change; glob patterns too.")
    group: str | None = Field(None, max_length=100, description="Sessions of one group share `groupLimit`.")
    group_limit: int | None = Field(None, ge=1, description="How many of the group may work at once.")

    def request(self) -> new_session.NewSession:
        """Return the request for `Sessions.create`."""
        return new_session.NewSession(
            project=self.project_id,
            issue=str(self.issue or ""),
            title=self.title or "",
            prompt=self.prompt or "",
            agent=self.agent,
            model=self.model,
            branch=self.branch or "",
            base=self.base or "",
            name=self.name or "",
            after=tuple(self.after),
            stack=self.stack,
            pr=str(self.pr or ""),
            resume_id=self.resume_id or "",
            labels=tuple(self.labels),
            priority=self.priority or 0,
            runtime=self.runtime or "",
            workspace=self.workspace or "",
            node=self.node,
            defer=self.defer,
            files=tuple(self.files),
            group=self.group or "",
            group_limit=self.group_limit or 0,
        )


class NewFix(RequestBody):
    """Failing tests and lint errors are to be fixed."""

    project_id: str | None = Field(None, description="The project; without it, the one of the caller's folder.")
    base: str | None = Field(None, max_length=200, description="The branch that is to become green.")
    commands: list[str] = Field([], max_length=50, description="What finds failures, instead of what is found.")
    max_rounds: int = Field(3, ge=1, le=20, description="How often agents are sent.")
    max_agents: int | None = Field(None, ge=1, description="How many of them may work at once.")
    agent: str | None = Field(None, description="A profile, else an agent.")
    model: str | None = None
    merge: bool = Field(True, description="False: what is verified is left for review.")
    dry_run: bool = Field(False, description="Only measure and group.")

    def request(self) -> FixRequest:
        """Return the request for `Fixes.create`."""
        return FixRequest(
            base=self.base or "",
            commands=tuple(self.commands),
            max_rounds=self.max_rounds,
            max_agents=self.max_agents or 0,
            agent=self.agent,
            model=self.model,
            merge=self.merge,
            dry_run=self.dry_run,
        )


class ChangedSession(RequestBody):
    """Who is to do what a session without a task yet was made for."""

    agent: str | None = Field(None, description="A profile, else an agent.")
    runtime: str | None = None
    model: str | None = None
    title: str | None = None


class ReadyPullRequest(RequestBody):
    """What a pull request that is no draft any more is called; absent: as it was."""

    title: str | None = Field(None, min_length=1, max_length=500)


class NewMessage(RequestBody):
    """A message to the agent."""

    content: str = Field(min_length=1)
    interrupt: bool = Field(False, description="Stop the agent's turn first.")


class NewAnswer(RequestBody):
    """A person's word on what the agent asks: text, or a decision on a permission it wants."""

    text: str | None = None
    decision: Literal["allow", "always", "deny"] | None = None
    message: str | None = Field(
        None, description="The message that waits for a person's word, if the decision is on one."
    )
    offer: str | None = Field(None, description="The action that a rule offers, if the decision is on one.")
    request: str | None = Field(
        None,
        max_length=100,
        description="`request` of the question that was shown: refused with 409 if the agent asks something else by now.",
    )

    @model_validator(mode="after")
    def _require_answer(self) -> NewAnswer:
        """Raise ValueError unless there is a text or a decision."""
        if not self.text and self.decision is None:
            raise ValueError("give text, or a decision: allow, always or deny")
        return self


class ReleasedAccount(RequestBody):
    """An account that is to be held no more."""

    account: str = Field(min_length=1, max_length=200, description="As `ao usage` names it: `work`, or `work opus`.")


class WithdrawnPermission(RequestBody):
    """What is to be asked again."""

    project: str
    tool: str
    command: str


class AuthoredText(RequestBody):
    """A text by the caller, or by another author that the caller names."""

    author: str | None = Field(
        None, min_length=1, max_length=80, description="Whose words these are; absent: the caller's."
    )
    write_access: Literal["yes", "no", "unknown"] | None = Field(
        None,
        description="May the author write to the repository? Absent: the caller may; of somebody else it is unknown.",
    )

    def text_author(self, caller: str | None) -> TextAuthor:
        """Return the author of the text and whether the author may write to the repository."""
        author = " ".join(clean_text(self.author or "").split())
        return TextAuthor(
            author or caller or "person", self.write_access or ("unknown" if author else HAS_WRITE_ACCESS)
        )


class NewIssue(AuthoredText):
    """An issue to be opened."""

    title: str = Field(min_length=1)
    body: str = ""
    labels: list[str] = []
    after: list[int] = Field([], description="Issues that must be closed before.")
    project_id: str | None = Field(None, description="The project; without it, the one of the caller's folder.")


class IssueChange(RequestBody):
    """What is to be another; what is not given stays."""

    title: str | None = None
    body: str | None = None
    state: Literal["open", "closed"] | None = None
    assignee: str | None = Field(None, description="Null or empty: nobody.")
    after: list[int] | None = Field(None, description="Issues that must be closed before.")


class NewComment(AuthoredText):
    """Something said about an issue."""

    body: str = Field(min_length=1)


class NewLabels(RequestBody):
    """Labels to be added."""

    labels: list[str] = Field(min_length=1)


class GivenTask(RequestBody):
    """A task of a plan."""

    id: str
    title: str
    description: str = Field("", description="All that the agent must know.")
    acceptance: list[str] = Field([], description="What must hold when it is done.")
    dependencies: list[str] = Field([], description="Tasks that must have landed before.")
    effort: Literal["small", "medium", "large"] = "medium"
    labels: list[str] = []
    files: list[str] = Field([], description="Files that it is expected to change; glob patterns too.")
    profile: str | None = Field(None, description="Who is suggested to take it.")
    priority: int = Field(0, description="Higher goes first.")
    issue: int | None = Field(None, description="The open issue that it is; absent: one is made.")
    issue_key: str | None = Field(None, description="As it was shown; does not count.")
    sessions: list[str] = Field([], description="As they were shown; do not count.")
    status: str | None = Field(None, description="As it was shown; does not count.")

    def data(self) -> dict[str, Any]:
        """Return the task's values, without those that are ignored."""
        return self.model_dump(exclude={"issue_key", "sessions", "status"})


class NewPlan(RequestBody):
    """A goal to be made into tasks."""

    project_id: str | None = Field(None, description="The project; without it, the one of the caller's folder.")
    goal: str = Field(
        "", description="What is to be reached; without it and without tasks: the open issues are planned."
    )
    from_issues: bool = Field(False, description="The tracker's open issues are the tasks.")
    agent: str | None = Field(None, description="The profile or agent that plans; absent: the configured one.")
    model: str | None = None
    tasks: list[GivenTask] | None = Field(None, description="The tasks themselves: nobody is asked.")


class PlanChange(RequestBody):
    """Other tasks for a plan: as such, or as the text that was edited."""

    goal: str | None = Field(None, description="Absent: it stays.")
    tasks: list[GivenTask] | None = None
    text: str | None = Field(None, max_length=1_000_000, description="Goal and tasks as YAML.")

    @model_validator(mode="after")
    def _require_one_form(self) -> PlanChange:
        """Raise ValueError unless there are either tasks or text."""
        if (self.tasks is None) == (self.text is None):
            raise ValueError("give either tasks or text")
        return self


class PlanApplication(RequestBody):
    """How a plan's tasks are to become issues."""

    start: bool = Field(True, description="They are taken as soon as there is room.")
    group_limit: int | None = Field(None, ge=1, description="How many of its sessions may work at once.")


class LineComment(RequestBody):
    """A comment on the change, on one of its files or on a line."""

    body: str = Field(min_length=1)
    path: str | None = None
    line: int | None = Field(None, ge=1)
    thread: str | None = Field(None, description="The comment that it answers.")

    def comment(self) -> new_review.NewComment:
        """Return the comment for `Reviews.submit`."""
        return new_review.NewComment(self.body, self.path, self.line, self.thread)


class NewReview(AuthoredText):
    """A review of a change."""

    verdict: Literal["approved", "changes_requested", "commented", "approve", "request-changes", "comment"] = Field(
        "commented", description="`approve`, `request-changes` and `comment` mean the same as the long forms."
    )
    body: str = ""
    comments: list[LineComment] = []

    def review(self) -> new_review.NewReview:
        """Return the review for `Reviews.submit`."""
        return new_review.NewReview(self.verdict, self.body, tuple(comment.comment() for comment in self.comments))


class ReviewRequest(RequestBody):
    """An agent that is to review a change."""

    agent: str | None = Field(None, description="A profile, else an agent; absent: the project's own.")
    message: str = Field("", description="What it is to look at in particular.")


class Resolved(RequestBody):
    """Discussions that are settled."""

    threads: list[str] = Field([], description="Each by its id, or by the id of a comment in it.")
    all: bool = Field(False, description="All that are open.")

    @model_validator(mode="after")
    def _require_threads(self) -> Resolved:
        """Raise ValueError unless there are either threads or `all`."""
        if bool(self.threads) == self.all:
            raise ValueError("give threads, or all")
        return self


class AskedPeople(RequestBody):
    """People who are to look at a change."""

    people: list[str] = Field(min_length=1, description="Their names at the forge; `org/team` is a team of GitHub's.")


class TriedNotifiers(RequestBody):
    """Which notifiers are to be tried."""

    names: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        default=[], max_length=100, description="Their names; none: all."
    )


class TestedTrigger(RequestBody):
    """A trigger whose rules are to be tried."""

    trigger: str = Field(min_length=1, max_length=100)


class MergeRequest(RequestBody):
    """A person's request to merge a change."""

    strategy: Literal["squash", "merge", "rebase"] | None = None
    force: bool = Field(False, description="Land it although its checks fail; this is recorded.")
    wait: bool = Field(False, description="Answer when it has landed or was refused.")
    timeout: float = Field(300.0, gt=0, le=3600, description="Seconds after which `wait` is answered in any case.")


class Replay(RequestBody):
    """A recorded log to be run through today's rules."""

    events: list[dict[str, Any]]
    project: str | None = None


class NewProject(RequestBody):
    """A repository to work in: a folder here, or a URL to clone."""

    path: str | None = None
    url: str | None = None
    init: bool = Field(False, description="Write its configuration if there is none.")

    @model_validator(mode="after")
    def _require_one_source(self) -> NewProject:
        """Raise ValueError unless there is either a path or a URL."""
        if (self.path is None) == (self.url is None):
            raise ValueError("give either path or url")
        return self


class Trusted(RequestBody):
    """The project whose commands may run; without a path, the one of the caller's folder.

    With the `digest` that was shown, nothing else is trusted: 409 where something changed since."""

    path: str | None = None
    digest: str | None = None


class Proving(RequestBody):
    """What to prove: what is configured, or, by the `digest` of a proposal, what was detected."""

    detected: str | None = None
    run: bool = Field(True, description="With `detected`; false: write and trust the most likely one, and run nothing.")


class Setting(RequestBody):
    """One value of the configuration."""

    key: str = Field(min_length=1)
    value: Any


class ConfigText(RequestBody):
    """A configuration to be checked: the file's path, or its text as if it stood at that path."""

    path: str | None = None
    text: str | None = None


class ImportRequest(RequestBody):
    """Another orchestrator's configuration, to be taken over."""

    path: str = Field(min_length=1, description="where it is; relative paths in it are meant from there")
    text: str = Field(description="what stands in it")
    output: str | None = Field(
        default=None, description="the file to write; absent: the configuration of the repository here"
    )
    replace: bool = Field(default=False, description="take its values where the file has others")
    dry_run: bool = False
    digest: str = Field(default="", description="of what a dry run showed: a person has read what it would run or open")


class PruneRequest(RequestBody):
    """A clean-up of what is provably safe."""

    dry_run: bool = False


class NewGoal(RequestBody):
    """A coordinating agent to be started, or found, and what is wanted of it."""

    project_id: str | None = Field(None, description="The project; without it, the one of the caller's folder.")
    goal: str | None = Field(None, description="A message to it; without it, it is only started.")
    agent: str | None = Field(None, description="A profile, else an agent; without it, as configured.")
    model: str | None = None


class NewToken(RequestBody):
    """A token to be made."""

    name: str
    role: Literal["viewer", "operator", "admin"] = "operator"


class RunCommand(RequestBody):
    """A command to be run in a session's workspace."""

    command: list[str] = Field(min_length=1, description="The program and its arguments.")


class NewNode(RequestBody):
    """A machine that is to join the cluster by hand."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="Its name.")


class DrainNode(RequestBody):
    """How a node is to be drained."""

    undo: bool = Field(False, description="It may get sessions again.")
    now: bool = Field(False, description="Interrupt turns that last.")


class SignIn(RequestBody):
    """What a browser signs in with: one of both."""

    code: str | None = Field(None, max_length=200, description="Of a one-time link.")
    token: str | None = Field(None, max_length=1000, description="Any token but a session's.")


class NewLoginLink(RequestBody):
    """A one-time link to be made."""

    role: Literal["viewer", "operator", "admin"] = "admin"


class Shutdown(RequestBody):
    """How the daemon is to end."""

    sessions: bool = Field(False, description="Stop the sessions too; otherwise they run on.")
