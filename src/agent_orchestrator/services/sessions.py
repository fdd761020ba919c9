"""Sessions, as people ask for them: create, find, message, stop, restore, look into."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_orchestrator.config.detect import detect
from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.engine import Change, Flow
from agent_orchestrator.flow.events import Event, rfc3339
from agent_orchestrator.flow.facts import Message, SessionFacts
from agent_orchestrator.flow.pull import Issue
from agent_orchestrator.git import Git
from agent_orchestrator.git_files import Layout, find_layout, read_head, read_ref
from agent_orchestrator.home import Home
from agent_orchestrator.host import Host
from agent_orchestrator.services import naming
from agent_orchestrator.services.issues import find_issue, task_text
from agent_orchestrator.services.lifecycle import log_path
from agent_orchestrator.services.plugins import Plugins, handle_of
from agent_orchestrator.services.projects import Context, Projects
from agent_orchestrator.services.transcript import last_lines
from agent_orchestrator.services.view import Views, message_json
from agent_orchestrator.spool import clean_text

LONGEST_MESSAGE = 1 << 20
OUTPUT_LINES = 500
STOP_PATIENCE = 120.0
ACKNOWLEDGED_WITHIN = 3.0
"""Seconds after delivery in which an agent that never acknowledged a message gets the chance to."""


class Sessions:
    """What may be asked of sessions. Answers come from facts; whatever changes something is an event."""

    def __init__(self, flow: Flow, home: Home, host: Host, plugins: Plugins, projects: Projects, views: Views) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.projects = projects
        self.views = views
        self._creating = asyncio.Lock()
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._output: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=OUTPUT_LINES))
        self._printed: dict[str, int] = defaultdict(int)
        flow.on_change.append(self._on_change)

    # -- finding -------------------------------------------------------------------------------------------------------

    def find(self, name: str, project: str | None = None) -> SessionFacts:
        """The session of that id, name, `<project>-<name>`, or a unique beginning of one of them; an exact match wins."""
        exact: dict[str, SessionFacts] = {}
        starts: dict[str, SessionFacts] = {}
        for facts in self.flow.sessions.values():
            names = (facts.id, facts.name, f"{facts.project}-{facts.name}")
            if name in names and (facts.id == name or project in (None, facts.project)):
                exact[facts.id] = facts
            elif any(one.startswith(name) for one in names):
                starts[facts.id] = facts
        if name in exact:
            return exact[name]
        for found in (exact, starts):
            here = {key: facts for key, facts in found.items() if facts.project == project} or found
            unfinished = {key: facts for key, facts in here.items() if not facts.stopped} or here
            if len(unfinished) == 1:
                return next(iter(unfinished.values()))
            if unfinished:
                raise UsageError(f"{name} may be {', '.join(sorted(unfinished))}", "write more of its name")
        raise NotFound(f"no session {name}", "see them all: ao status -A")

    def view(self, session: str) -> dict[str, Any]:
        """One session as JSON."""
        return self.views.session(self.flow.sessions[session])

    def list_body(self, project: str | None) -> bytes:
        """All sessions as JSON text."""
        return self.views.body(project)

    def status_view(self, session: str) -> dict[str, Any]:
        """A session's state in a few words."""
        facts = self.flow.sessions[session]
        status, full = self.views.status(facts), self.view(session)
        keys = ("status", "activity", "branch", "workspacePath", "agent", "progress")
        return {
            "state": status.state,
            "currentTask": facts.progress.step or facts.spec.title,
            "lastActivity": rfc3339(facts.activity.at or facts.updated_at),
            **{key: full[key] for key in keys},
        }

    def tasks(self) -> list[dict[str, Any]]:
        """What is wanted, and who works on it."""
        return [
            {
                "id": task.id,
                "project": task.project,
                "title": task.title,
                "description": task.description,
                "issue": task.issue,
                "labels": list(task.labels),
                "priority": task.priority,
                "after": list(task.after),
                "sessions": list(task.sessions),
                "createdAt": rfc3339(task.created_at),
            }
            for task in self.flow.home.tasks.values()
        ]

    def complete(self, kind: str, prefix: str) -> list[str]:
        """Names that begin so, for the shell."""
        if kind == "projects":
            names = [project.id for project in self.plugins.config.projects()]
        else:
            names = [facts.id for facts in self.flow.sessions.values() if not facts.stopped]
            names += [facts.name for facts in self.flow.sessions.values() if not facts.stopped]
        return sorted({name for name in names if name.startswith(prefix)})

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create(self, request: Mapping[str, Any], key: str | None, context: Context) -> dict[str, Any]:
        """Record a session to be made; the same key gives the same session."""
        if known := await self._made_by(key):
            return known
        project_id = await self.projects.resolve(context, request.get("projectId"), adopt=True)
        if project_id is None:
            raise UsageError("no project is named", "name one: projectId, or -p P")
        project = self.plugins.project(project_id)
        settings = self._agent(project, request.get("agent"))
        await self.projects.check_trust(project, settings.profile)
        runtime = await self.plugins.runtime_name(request.get("runtime") or settings.runtime)
        self.plugins.runtime(runtime, self.plugins.registry(project))
        self.plugins.registry(project).get("workspace", request.get("workspace") or settings.workspace)
        async with self._creating:
            if known := await self._made_by(key):
                return known
            body, task, session = await self._spec(request, project, settings, runtime)
            now = self.flow.clock()
            unique = key or uuid.uuid4().hex
            events = [
                Event(task, now, "person", f"task:{unique}", project_id),
                Event(body, now, "person", f"create:{unique}", project_id, session),
            ]
            if issue := self._issue(project_id, body.issue):
                taken = e.IssueChanged(issue.number, assignee=session)
                events.append(Event(taken, now, "person", f"assign:{unique}", project_id))
            await self.flow.append(*events)
        return self.view(session)

    async def _made_by(self, key: str | None) -> dict[str, Any] | None:
        """The session that a request with this key made before."""
        event = await self.flow.store.event_by_key(f"create:{key}") if key else None
        if event is None or event.session is None:
            return None
        if event.session not in self.flow.sessions:
            await self.flow.append()  # committed just now, and not in memory yet: the next commit comes after it
        return self.view(event.session)

    def _agent(self, project: ProjectConfig, name: str | None) -> AgentSettings:
        settings = self.plugins.config.agent(project.id, name)
        assert settings is not None
        self.plugins.agent(project, settings)
        return settings

    async def _spec(
        self, request: Mapping[str, Any], project: ProjectConfig, settings: AgentSettings, runtime: str
    ) -> tuple[e.SessionCreated, e.TaskCreated, str]:
        layout = find_layout(project.path)
        if layout is None:
            raise UsageError(
                f"{project.path} is not a Git repository", "make one by git init, or correct the project's path"
            )
        if request.get("pr") or request.get("stack"):
            raise UsageError(
                "pull requests of a forge and stacked branches cannot be taken up", "continue a branch: --branch B"
            )
        if request.get("node"):
            raise NotFound(f"no node {request['node']}", "this machine is the only one: leave the node out")
        issue = naming.checked_issue(str(request["issue"])) if request.get("issue") else None
        known = self._issue(project.id, issue)
        if known is not None and known.state != "open":
            raise Conflict(f"issue {issue} is closed", f"open it again: ao issue reopen {issue}")
        title, prompt = _wording(request, issue, known)
        name, session = self._names(request, project, issue, _short_name(request, issue, known, title))
        base = str(request.get("base") or project.default_branch or detect(project.path).default_branch or "main")
        branch, existing = await self._branch(request, project, layout, name, issue, base)
        if request.get("base"):
            await self._check_base(project.path, base)
        after = tuple(self.find(other, project.id).id for other in request.get("after") or ())
        task = e.TaskCreated(
            task=f"T{len(self.flow.home.tasks) + 1}",
            title=title,
            description=prompt,
            issue=issue,
            labels=tuple(dict.fromkeys([*(request.get("labels") or ()), *(known.labels if known else ())])),
            priority=int(request.get("priority") or 0),
            after=self._tasks_before(after, known),
        )
        body = e.SessionCreated(
            task=task.task,
            name=name,
            title=title,
            prompt=_with_rules(prompt, project, settings) if prompt else "",
            agent=settings.tool,
            profile=settings.profile,
            runtime=runtime,
            workspace=request.get("workspace") or settings.workspace,
            branch=branch,
            base=base,
            repo=str(project.path),
            path=str(self._folder(project) / name),
            link=str(project.path / ".worktrees" / name) if layout.top else None,
            issue=issue,
            node=request.get("node"),
            model=request.get("model"),
            existing=existing,
            defer=bool(request.get("defer")) and not prompt,
            after=after,
            priority=task.priority,
            ports=self._ports(project),
            labels=task.labels,
        )
        return body, task, session

    def _issue(self, project: str, issue: str | None) -> Issue | None:
        """The local tracker's issue; a project that has none there may name those of any other tracker."""
        if issue is None or not issue.isdigit():
            return None
        if not any(one.project == project for one in self.flow.home.issues.values()):
            return None
        return find_issue(self.flow, project, int(issue))

    def _tasks_before(self, sessions: Sequence[str], issue: Issue | None) -> tuple[str, ...]:
        """The tasks that must be done before: those of the sessions, and of the issues that the issue comes after."""
        tasks = [self.flow.sessions[session].spec.task for session in sessions]
        if issue is not None:
            before = {str(number) for number in issue.after}
            known = self.flow.home.tasks.values()
            tasks += [task.id for task in known if task.project == issue.project and task.issue in before]
        return tuple(dict.fromkeys(tasks))

    def _names(
        self, request: Mapping[str, Any], project: ProjectConfig, issue: str | None, wanted: str
    ) -> tuple[str, str]:
        prefix, folder = project.session_prefix, self._folder(project)
        taken = {
            facts.name: facts
            for facts in self.flow.sessions.values()
            if facts.id == f"{prefix}-{facts.name}" or facts.spec.path == str(folder / facts.name)
        }
        if request.get("name"):
            name = naming.checked_name(str(request["name"]))
            if other := taken.get(name):
                way = "bring it back: ao restore" if other.stopped else "look at it: ao status"
                raise Conflict(
                    f"there is a session {other.id} already ({self.views.status(other).name})",
                    f"{way} {other.id}, or choose another name",
                )
            return name, f"{prefix}-{name}"
        if issue:
            self._refuse_second(project.id, issue)
        name = naming.free_name(wanted, taken)
        return name, f"{prefix}-{name}"

    def _folder(self, project: ProjectConfig) -> Path:
        """Where a project's workspaces are."""
        return project.worktree_dir or self.home.worktrees / project.id

    def _refuse_second(self, project: str, issue: str) -> None:
        for facts in self.flow.sessions.values():
            if facts.project == project and facts.spec.issue == issue and not facts.stopped:
                raise Conflict(
                    f"{facts.id} works on issue {issue} already", f"send it a message, or stop it: ao stop {facts.id}"
                )

    async def _branch(
        self,
        request: Mapping[str, Any],
        project: ProjectConfig,
        layout: Layout,
        name: str,
        issue: str | None,
        base: str,
    ) -> tuple[str, bool]:
        """The branch, and whether it is there already to be continued."""
        reserved = {
            facts.branch
            for facts in self.flow.sessions.values()
            if facts.project == project.id and not facts.stopped and (facts.place is None or facts.place.present)
        }

        def there(branch: str) -> bool:
            heads = (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
            return branch in reserved or any(read_ref(layout.common, ref) for ref in heads)

        if not request.get("base") and read_head(layout.git_dir) is None and not there(base):
            raise Conflict(f"{project.path} has no commit yet", "make a first one: git commit --allow-empty -m start")
        if request.get("branch"):
            branch = naming.checked_branch(str(request["branch"]))
            if branch in reserved:
                holder = next(facts.id for facts in self.flow.sessions.values() if facts.branch == branch)
                raise Conflict(
                    f"the branch {branch} belongs to {holder} already", f"choose another, or stop it: ao stop {holder}"
                )
            if there(branch):
                await self._not_checked_out(project.path, branch)
            return branch, there(branch)
        wanted = naming.branch_for(name, issue, project)
        number, branch = 1, wanted
        while there(branch):
            number += 1
            branch = f"{wanted}-{number}"
        return branch, False

    async def _check_base(self, repo: Path, base: str) -> None:
        """A base that nobody knows is told at once; where there is a remote, it may know it."""
        git = Git(self.host, repo)
        found = await git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}", ok=(0, 1, 128)
        )
        if found.code and not (await git.run("remote")).out.strip():
            raise UsageError(f"{repo} has no base {base!r}", "git branch --all lists what there is")

    async def _not_checked_out(self, repo: Path, branch: str) -> None:
        for entry in await Git(self.host, repo).worktrees():
            if entry.branch == branch:
                raise Conflict(
                    f"the branch {branch} is checked out at {entry.path}",
                    "switch that checkout to another branch first",
                )

    def _ports(self, project: ProjectConfig) -> tuple[int, ...]:
        if project.ports is None:
            return ()
        taken = {
            facts.spec.ports[0]
            for facts in self.flow.sessions.values()
            if facts.spec.ports and (not facts.stopped or (facts.place and facts.place.present))
        }
        first = project.ports.base
        while first in taken:
            first += project.ports.count
        if first + project.ports.count > 65536:
            raise Conflict(f"{project.id} has no free block of ports", "stop sessions, or lower ports.base")
        return tuple(range(first, first + project.ports.count))

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        for session in {change.event.session for change in changes}:
            self._wake(session or "")

    def _wake(self, session: str) -> None:
        for waiter in self._waiters.get(session, ()):
            waiter.set()

    def print(self, session: str, line: str) -> None:
        """A line of live output of a session's set-up."""
        self._output[session].append(clean_text(line))
        self._printed[session] += 1
        self._wake(session)

    async def until(
        self, session: str, done: Callable[[SessionFacts], bool], timeout: float | None = None
    ) -> SessionFacts:
        """Wait for a session's facts to be so; returns them as they are when time is up."""
        async with aclosing(self._follow(session, timeout)) as changes:
            async for facts in changes:
                if done(facts):
                    return facts
        return self.flow.sessions[session]

    async def _follow(self, session: str, timeout: float | None) -> AsyncGenerator[SessionFacts, None]:
        """A session's facts, now and at each change, until time is up."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        self._waiters[session].add(changed)
        try:
            while True:
                changed.clear()
                yield self.flow.sessions[session]
                await asyncio.wait_for(changed.wait(), None if end is None else max(0.0, end - loop.time()))
        except TimeoutError:
            return
        finally:
            self._waiters[session].discard(changed)

    async def wait(self, session: str, until: str = "running") -> AsyncIterator[dict[str, Any]]:
        """Live output until the agent runs, it failed, or it is clear that it must wait."""
        if until != "running":
            raise UsageError(f"cannot wait until {until}", "wait until running")
        shown, told = 0, ""
        async with aclosing(self._follow(session, None)) as changes:
            async for facts in changes:
                fresh = self._printed[session] - shown
                if fresh > 0:
                    for line in list(self._output[session])[-min(fresh, OUTPUT_LINES) :]:
                        yield {"output": line}
                    shown += fresh
                status = self.views.status(facts)
                if status.why != told:
                    told = status.why
                    yield {"state": told}
                if _settled(facts):
                    break
        yield {"session": self.view(session)}

    # -- messages ------------------------------------------------------------------------------------------------------

    async def send(
        self, session: str, content: str, *, key: str | None = None, interrupt: bool = False, sender: str = "person"
    ) -> dict[str, Any]:
        """Accept a message for the agent, durably; the same key is the same message."""
        facts = self.flow.sessions[session]
        text = clean_text(content).strip("\n")
        if not text.strip():
            raise UsageError("the message is empty", "write something")
        if len(text.encode()) > LONGEST_MESSAGE:
            raise UsageError(
                f"the message has over {LONGEST_MESSAGE >> 20} MB", "put it into a file in the workspace and name that"
            )
        message = f"m-{hashlib.sha256(key.encode()).hexdigest()[:16]}" if key else f"m-{uuid.uuid4().hex[:16]}"
        known = self._message(facts, message)
        if known is None:
            self._refuse_if_deaf(facts)
            body = e.MessageQueued(message, text, sender, interrupt)
            event = Event(body, self.flow.clock(), sender, f"message:{session}:{message}", facts.project, session)
            await self.flow.append(event)
            known = self._message(self.flow.sessions[session], message)
        return {"messageId": message, "state": known.state if known else "queued"}

    def _refuse_if_deaf(self, facts: SessionFacts) -> None:
        if facts.stopped or facts.wanted == "stop":
            raise Conflict(f"{facts.id} is stopped", f"bring it back first: ao restore {facts.id}")
        if facts.failure and not facts.live:
            raise Conflict(f"{facts.id} failed at {facts.failure.step}", f"mend that, then: ao restore {facts.id}")

    def _message(self, facts: SessionFacts, message: str) -> Message | None:
        return next((one for one in facts.messages if one.id == message), None)

    def messages(self, session: str) -> list[dict[str, Any]]:
        """A session's messages, oldest first."""
        return [message_json(message) for message in self.flow.sessions[session].messages]

    async def message(self, session: str, message: str, wait: float | None = None) -> dict[str, Any]:
        """One message; `wait`: until its fate is known, at most so many seconds."""

        def ended(facts: SessionFacts) -> bool:
            one = self._message(facts, message)
            return one is None or one.state in ("acknowledged", "failed")

        def delivered(facts: SessionFacts) -> bool:
            one = self._message(facts, message)
            return ended(facts) or (one is not None and one.state == "delivered" and not facts.acknowledges)

        patience = wait or 0.0
        facts = await self.until(session, delivered, patience)
        if not ended(facts):  # an agent that never acknowledged anything may do so now, or never
            facts = await self.until(session, ended, min(patience, ACKNOWLEDGED_WITHIN))
        found = self._message(facts, message)
        if found is None:
            raise NotFound(f"{session} has no message {message}", f"see them: ao api GET /sessions/{session}/messages")
        return message_json(found)

    def questions(self, project: str | None) -> list[dict[str, Any]]:
        """Everything that waits for a person's answer, oldest first."""
        found = []
        for facts in self.flow.sessions.values():
            status = self.views.status(facts)
            if project in (None, facts.project) and status.name in ("needs_input", "blocked"):
                question = {
                    "session": facts.id,
                    "kind": "question" if status.name == "needs_input" else "permission",
                    "text": status.waiting_for,
                    "since": rfc3339(status.at),
                    "context": last_lines(log_path(self.home, facts.id), 8).splitlines(),
                }
                found.append((status.at, question))
        return [question for _, question in sorted(found, key=lambda pair: pair[0])]

    async def answer(
        self, session: str, *, text: str | None = None, decision: str | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """A person's answer: text to a question, a decision to a permission request."""
        facts = self.flow.sessions[session]
        status = self.views.status(facts).name
        if status == "blocked":
            if decision is None:
                raise UsageError(f"{session} waits for a permission, not for text", "say --allow, --always or --deny")
            return await self._decide(facts, decision, text, key)
        if decision is not None:
            raise Conflict(f"{session} waits for no permission ({status})", "see what it waits for: ao status")
        return await self.send(session, text or "", key=key)

    async def _decide(self, facts: SessionFacts, decision: str, text: str | None, key: str | None) -> dict[str, Any]:
        keys = self.plugins.agent_of(facts).permission_keys.get(decision)
        handle = handle_of(facts)
        if keys is None or handle is None:
            raise UsageError(
                f"{facts.spec.agent} cannot be answered by {decision}", f"answer in its terminal: ao attach {facts.id}"
            )
        unique = f"answer:{facts.id}:{facts.activity.at:.6f}"
        body = e.PermissionAnswered(decision, text or "")
        event = Event(body, self.flow.clock(), "person", unique, facts.project, facts.id, facts.generation)
        if not await self.flow.append(event) and key is None:
            raise Conflict(f"{facts.id} has been answered already", "see what it does now: ao status")
        await self.plugins.runtime_of(facts).press(handle, keys)
        return {"messageId": None, "state": "delivered"}

    # -- the end, and back ---------------------------------------------------------------------------------------------

    async def stop(self, session: str, keep: bool = False, key: str | None = None) -> dict[str, Any]:
        """Stop a session, save its work, remove its workspace once that is safe; says where everything went."""
        facts = self.flow.sessions[session]
        if not facts.stopped:
            unique = f"stop:{session}:{key or uuid.uuid4().hex}"
            await self.flow.append(
                Event(e.StopRequested(keep), self.flow.clock(), "person", unique, facts.project, session)
            )
        facts = await self.until(
            session, lambda now: now.stopped or (now.failure is not None and not now.live), STOP_PATIENCE
        )
        if facts.failure and not facts.stopped:
            raise AoError(f"{session} could not be stopped: {facts.failure.error}", facts.failure.remedy)
        return {"session": self.view(session), "saved": list(facts.saved), "undo": f"ao restore {session}"}

    async def stop_all(self, project: str | None, keep: bool = False, key: str | None = None) -> dict[str, Any]:
        """Stop every session of a project."""
        chosen = [
            facts.id for facts in self.flow.sessions.values() if project in (None, facts.project) and not facts.stopped
        ]
        return {"stopped": await asyncio.gather(*(self.stop(session, keep, key) for session in chosen))}

    async def restore(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Bring a session back: same branch, same work, same conversation."""
        facts = self.flow.sessions[session]
        unique = f"restore:{session}:{key or uuid.uuid4().hex}"
        if await self.flow.store.event_by_key(unique) is None:
            if facts.wanted == "stop" and not facts.stopped:
                raise Conflict(f"{session} is being stopped", "wait a moment, then try again")
            if facts.live or (not facts.stopped and facts.failure is None and facts.launched_run != facts.run):
                raise Conflict(f"{session} runs already", f"see it: ao status {session}")
            self.plugins.project(facts.project)
            await self.flow.append(
                Event(e.RestoreRequested(), self.flow.clock(), "person", unique, facts.project, session)
            )
        return self.view(session)


def _wording(request: Mapping[str, Any], issue: str | None, known: Issue | None) -> tuple[str, str]:
    """Title and prompt as given, else the issue's, else each made of the other."""
    title = clean_text(str(request.get("title") or "")).strip()
    prompt = clean_text(str(request.get("prompt") or "")).strip()
    if known is not None:
        return naming.title_of(title or prompt) or known.title, prompt or task_text(known)
    if not title and not prompt and issue:
        return f"Issue {issue}", f"Work on issue {issue}."
    if not title and not prompt and not request.get("defer"):
        raise UsageError("there is no task", "say what is to be done: title, prompt or issue")
    name = str(request.get("name") or "")
    return naming.title_of(title or prompt) or name, prompt or ("" if request.get("defer") else title)


def _short_name(request: Mapping[str, Any], issue: str | None, known: Issue | None, title: str) -> str:
    """The name that a session gets if it is free: of its task's words, or of the issue's number if they are not known."""
    if issue and known is None and not request.get("title") and not request.get("prompt"):
        return f"issue-{naming.slug(issue)}"
    return naming.slug(title)


def _with_rules(prompt: str, project: ProjectConfig, settings: AgentSettings) -> str:
    """The task with the project's and the profile's standing rules behind it."""
    parts = [prompt, project.agent_rules.strip(), settings.rules.strip()]
    if project.agent_rules_file is not None:
        try:
            parts.insert(2, project.agent_rules_file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"agentRulesFile {project.agent_rules_file} cannot be read: {error}", "correct its path"
            ) from None
    return "\n\n".join(part for part in parts if part)


def _settled(facts: SessionFacts) -> bool:
    """Whoever waits for the start has nothing more to wait for."""
    if facts.failure or facts.stopped or facts.wanted == "stop":
        return True
    if facts.launched_run == facts.run:
        return True
    if not facts.admitted:
        return bool(facts.waiting_for)
    return facts.spec.defer and facts.place is not None and facts.place.present and facts.next_message is None
