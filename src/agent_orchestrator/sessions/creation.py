"""What a new session is to be: its name, branch, base, folder, ports and words, made of a request, the project and what exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import plain
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout, find_layout, read_head, read_ref
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import AgentSettings, ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.event_redaction import KEPT
from agent_orchestrator.core.facts import CLUSTER, SessionFacts
from agent_orchestrator.core.fold.pull_requests import issue_of
from agent_orchestrator.core.plans import Plan
from agent_orchestrator.core.pull_request import Issue
from agent_orchestrator.core.reactions import CHANGELESS, COORDINATOR
from agent_orchestrator.errors import Conflict, NotFound, UsageError, machine_short
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions import names
from agent_orchestrator.sessions.agents.prompts import skills_text
from agent_orchestrator.sessions.issue_task import find_issue, task_text
from agent_orchestrator.sessions.session_view import Views

LONGEST_PROMPT = 1 << 20
"""Bytes of a task, at most; an issue's text is cut there."""
LONGEST_RULES = 1 << 18
"""Bytes of a file of rules, at most: it came with the repository, and is kept with every session."""


class Creation:
    """Decides everything about a session before anything is made; refuses what cannot be."""

    def __init__(
        self, flow: Flow, home: Home, host: Host, views: Views, find: Callable[[str, str | None], SessionFacts]
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.views = views
        self.find = find
        self.node_folder: Callable[[str], Path] = lambda project: home.worktrees / project
        """Where a project's workspaces are on a node."""

    async def spec(
        self, request: Mapping[str, Any], project: ProjectConfig, settings: AgentSettings, runtime: str, workspace: str
    ) -> tuple[e.SessionCreated, e.TaskCreated, str]:
        request = KNOWN.tree(request, KEPT)  # a name and a branch are made of its words
        layout = find_layout(project.path)
        if layout is None:
            raise UsageError(
                f"{project.path} is not a Git repository", "make one by git init, or correct the project's path"
            )
        if request.get("pr"):
            request = {**self._of_pull_request(str(request["pr"]), project), **request}
        request, stack = self._stacked(request, project)
        issue = names.checked_issue(str(request["issue"])) if request.get("issue") else None
        known = self.issue(project.id, issue)
        if known is not None and known.state != "open":
            raise Conflict(f"issue {issue} is closed", f"open it again: ao issue reopen {issue}")
        title, prompt = _wording(request, issue, known, project.trusted_authors)
        wanted = _short_name(request, issue, known, title)
        name, session = self._names(request, project, issue, wanted, self._folder(project, runtime))
        base = str(request.get("base") or project.default_branch or default_branch(project.path) or "main")
        suggested = names.suggested_branch(known.branch) if known and project.branch_pattern is None else None
        branch, existing = await self._branch(
            request, project, layout, suggested or names.branch_for(name, issue, project), base
        )
        if request.get("base") and stack is None:
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
        group, limit = _group(request, known, self.flow.home.plans)
        body = e.SessionCreated(
            task=task.task,
            name=name,
            title=title,
            prompt=prompt,
            rules=standing_rules(project, settings)
            if request.get("kind") != COORDINATOR
            else project.coordinator.rules.strip(),
            conversation=str(request["resumeId"]) if request.get("resumeId") else None,
            agent=settings.tool,
            profile=settings.profile,
            runtime=runtime,
            workspace=workspace,
            branch=branch,
            base=base,
            repo=str(project.path),
            path=str(self._folder(project, runtime) / name),
            link=str(project.path / ".worktrees" / name) if layout.top and runtime != CLUSTER else None,
            issue=issue,
            node=request.get("node"),
            home="" if runtime == CLUSTER else self.flow.here,
            model=request.get("model"),
            existing=existing,
            defer=bool(request.get("defer")) and not prompt,
            after=after,
            priority=task.priority,
            ports=self._ports(project),
            labels=task.labels,
            kind=str(request.get("kind") or "worker"),
            reviews=request.get("reviews"),
            spawned=tuple(request.get("spawned") or ()),
            parent=request.get("parent"),
            stack=stack,
            scm=str(request.get("scm") or "local"),
            tracker=known.tracker if known else "local",
            files=_files(request, known),
            group=group,
            group_limit=limit,
            account=settings.account,
        )
        return body, task, session

    def _of_pull_request(self, wanted: str, project: ProjectConfig) -> dict[str, str]:
        """Branch and task of a pull request whose session is over."""
        number = wanted.strip().lstrip("#!")
        for facts in self.flow.sessions.values():
            pr = facts.pr
            if pr is None or facts.project != project.id or str(pr.number) != number:
                continue
            if pr.state == "merged":
                raise Conflict(f"pull request #{number} has landed already", "start a new session instead")
            if not facts.stopped:
                raise Conflict(
                    f"{facts.id} works on pull request #{number}",
                    f"send it a message, or stop it first: ao stop {facts.id}",
                )
            task = f"Continue pull request #{number}: {pr.title}"
            return {"branch": facts.branch, "title": pr.title, "prompt": f"{task}\n\n{facts.spec.prompt}".strip()}
        raise NotFound(f"{project.id} has no pull request #{number}", "see what there is: ao status")

    def _stacked(self, request: Mapping[str, Any], project: ProjectConfig) -> tuple[Mapping[str, Any], str | None]:
        """The request for the branch of the session it is to stand on, and that session; none: it stands on an ordinary base."""
        if not request.get("stack"):
            return request, None
        if (scm := request.get("scm", "local")) != "local":
            remedy = "leave --stack out: it starts when the other one has landed"
            raise UsageError(f"stacked branches are for the local forge, not for {scm}", remedy)
        if len(request.get("after") or ()) != 1:
            raise UsageError("a stacked branch stands on one other", "name its session: --after S --stack")
        if other := next((name for name in ("base", "branch", "pr") if request.get(name)), None):
            raise UsageError(f"--stack and --{other} both say where the branch begins", "leave one of them out")
        below = self.find(str(request["after"][0]), project.id)
        if below.project != project.id:
            raise UsageError(f"{below.id} belongs to {below.project}", f"name a session of {project.id}")
        if below.spec.kind in CHANGELESS:
            raise UsageError(f"{below.id} is a {below.spec.kind} and has no change", "name a session that makes one")
        landed = below.pr is not None and below.pr.state == "merged"
        return {**request, "base": below.base if landed else below.branch}, None if landed else below.id

    def issue(self, project: str, issue: str | None) -> Issue | None:
        """The local tracker's issue; a project that has none there may name those of any other tracker."""
        if issue is None or (known := issue_of(self.flow.home.issues, project, issue)) is not None:
            return known if issue else None
        if not issue.isdigit() or not any(one.project == project for one in self.flow.home.issues.values()):
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
        self, request: Mapping[str, Any], project: ProjectConfig, issue: str | None, wanted: str, folder: Path
    ) -> tuple[str, str]:
        prefix = project.session_prefix
        taken = {
            facts.name: facts
            for facts in self.flow.sessions.values()
            if facts.id == f"{prefix}-{facts.name}" or facts.spec.path == str(folder / facts.name)
        }
        if request.get("name"):
            name = names.checked_name(str(request["name"]))
            if other := taken.get(name):
                way = "bring it back: ao restore" if other.stopped else "look at it: ao status"
                raise Conflict(
                    f"there is a session {other.id} already ({self.views.status(other).name})",
                    f"{way} {other.id}, or choose another name",
                )
            return name, f"{prefix}-{name}"
        if issue:
            self._refuse_second(project.id, issue)
        name = names.free_name(wanted, taken)
        return name, f"{prefix}-{name}"

    def _folder(self, project: ProjectConfig, runtime: str) -> Path:
        """Where a project's workspaces are; on the nodes of a cluster they are in the same place on each."""
        if runtime == CLUSTER:
            return self.node_folder(project.id)
        folder = project.worktree_dir or self.home.worktrees / project.id
        if folder.is_relative_to(project.path) and not folder.resolve().is_relative_to(project.path.resolve()):
            raise UsageError(f"worktreeDir {folder} leads out of the repository", "name the folder itself")
        return folder

    def _refuse_second(self, project: str, issue: str) -> None:
        for facts in self.flow.sessions.values():
            if facts.project == project and facts.spec.issue == issue and not facts.stopped:
                raise Conflict(
                    f"{facts.id} works on issue {issue} already", f"send it a message, or stop it: ao stop {facts.id}"
                )

    async def _branch(
        self, request: Mapping[str, Any], project: ProjectConfig, layout: Layout, wanted: str, base: str
    ) -> tuple[str, bool]:
        """The branch, and whether it is there already to be continued."""
        reserved = {
            facts.branch: facts.id
            for facts in self.flow.sessions.values()
            if facts.project == project.id and not facts.stopped and (facts.place is None or facts.place.present)
        }

        def there(branch: str) -> bool:
            heads = (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
            return branch in reserved or any(read_ref(layout.common, ref) for ref in heads)

        if not request.get("base") and read_head(layout.git_dir) is None and not there(base):
            raise Conflict(f"{project.path} has no commit yet", "make a first one: git commit --allow-empty -m start")
        if request.get("branch"):
            branch = names.checked_branch(str(request["branch"]))
            if branch == base:
                raise Conflict(
                    f"{branch} is what the change is to land on: nothing would be checked before",
                    "choose another branch",
                )
            if branch in reserved:
                holder = reserved[branch]
                raise Conflict(
                    f"the branch {branch} belongs to {holder} already", f"choose another, or stop it: ao stop {holder}"
                )
            if there(branch):
                await self._not_checked_out(project.path, branch)
            return branch, there(branch)
        number, branch = 1, wanted
        while there(branch):
            number += 1
            branch = f"{wanted}-{number}"
        return branch, False

    async def _check_base(self, repo: Path, base: str) -> None:
        """A base that nobody knows is told at once; where there is a remote, it may know it."""
        git = Git(self.host, repo)
        if await git.resolve(base) is None and not (await git.run("remote")).out.strip():
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


def _wording(
    request: Mapping[str, Any], issue: str | None, known: Issue | None, trusted: Sequence[str]
) -> tuple[str, str]:
    """Title and prompt as given, else the issue's, else each made of the other."""
    title = clean_text(str(request.get("title") or "")).strip()
    if request.get("kind") == COORDINATOR:
        return title, ""  # it begins at rest; what is wanted of it comes as messages
    prompt = clean_text(str(request.get("prompt") or "")).strip()
    if len(prompt.encode()) > LONGEST_PROMPT:
        raise UsageError(f"the task has over {LONGEST_PROMPT >> 20} MB", "put it into a file and name that")
    if known is not None:
        wanted = "" if request.get("defer") else _fitting(task_text(known, trusted), known)
        return names.title_of(title or prompt) or known.title, prompt or wanted
    if not title and not prompt and issue:
        return f"Issue {issue}", "" if request.get("defer") else f"Work on issue {issue}."
    if not title and not prompt and not request.get("defer"):
        raise UsageError("there is no task", "say what is to be done: title, prompt or issue")
    name = str(request.get("name") or "")
    return names.title_of(title or prompt) or name, prompt or ("" if request.get("defer") else title)


def _fitting(task: str, issue: Issue) -> str:
    """A task of an issue's words, of a length that can be kept."""
    content = task.encode()
    if len(content) <= LONGEST_PROMPT:
        return task
    return f"{content[:LONGEST_PROMPT].decode(errors='ignore')}\n\n(The rest of issue {issue.name} is left out: it is too long.)"


def _short_name(request: Mapping[str, Any], issue: str | None, known: Issue | None, title: str) -> str:
    """The name that a session gets if it is free: of its task's words, or of the issue's number if they are not known."""
    if issue and known is None and not request.get("title") and not request.get("prompt"):
        return f"issue-{names.slug(issue)}"
    return names.slug(title)


def _group(request: Mapping[str, Any], known: Issue | None, plans: Mapping[str, Plan]) -> tuple[str, int]:
    """The group that it belongs to and how many of it may work at once: by the request, else by the plan of its issue."""
    plan = plans.get(known.planned.plan) if known and known.planned else None
    if request.get("group") or plan is None:
        return str(request.get("group") or ""), int(request.get("groupLimit") or 0)
    return plan.id, plan.group_limit


def _files(request: Mapping[str, Any], known: Issue | None) -> tuple[str, ...]:
    """What it is expected to change, by the request, else by the plan that its issue is a task of."""
    planned = known.planned.files if known and known.planned else ()
    return tuple(request.get("files") or planned)


def standing_rules(project: ProjectConfig, settings: AgentSettings) -> str:
    """The project's and the profile's standing rules, and what the profile is good at."""
    parts = [project.agent_rules.strip(), settings.rules.strip(), skills_text(project.path, settings.skills)]
    if project.agent_rules_file is not None:
        parts.insert(1, _rules_in(project.agent_rules_file, project.path))
    return "\n\n".join(part for part in parts if part)


def _rules_in(file: Path, root: Path) -> str:
    """What the project's file of rules says. Raises `UsageError` for one that leads out of the repository, or is no short text."""
    try:
        real = file.resolve()
        if file.is_relative_to(root) and not real.is_relative_to(root.resolve()):
            raise UsageError(
                f"agentRulesFile {file} is a link that leads out of the repository", "name the file itself"
            )
        with plain(real) as opened:
            content = opened.read(LONGEST_RULES + 1)
        if len(content) > LONGEST_RULES:
            raise UsageError(f"agentRulesFile {file} has over {LONGEST_RULES >> 10} KB", "shorten it, or name another")
        return content.decode().strip()
    except (OSError, ValueError, RuntimeError) as error:
        unreadable = UsageError(f"agentRulesFile {file} cannot be read: {error}", "correct its path")
        raise machine_short(error) or unreadable from None
