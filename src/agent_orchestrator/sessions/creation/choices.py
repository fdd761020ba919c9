"""Decides what a new session is: its name, branch, base, folder, ports and texts.

All of it comes from the request, the project's configuration and what exists. Look here when a new session is refused or gets an unexpected
name, branch or task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.base.files.safe import open_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout, find_layout, read_head, read_ref
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import ProjectConfig, ResolvedAgent
from agent_orchestrator.core import events as e
from agent_orchestrator.core.event_redaction import UNREDACTED_FIELDS
from agent_orchestrator.core.facts import CLUSTER_RUNTIME, COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.fold.issues import issue_of
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.plans import Plan
from agent_orchestrator.core.pull_request import LOCAL_FORGE
from agent_orchestrator.core.reactions import KINDS_WITHOUT_CHANGE
from agent_orchestrator.errors import Conflict, NotFound, UsageError, resource_shortage
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.agents.prompts import skills_text
from agent_orchestrator.sessions.cluster_service import ClusterService
from agent_orchestrator.sessions.creation import names
from agent_orchestrator.sessions.creation.issue_task import find_issue, issue_task_text
from agent_orchestrator.sessions.creation.new_session import ForgeChoice, NewSession
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.sessions.session_view import SessionViews

MAX_PROMPT_BYTES = 1 << 20
"""Maximum size of a task in bytes; an issue's text is cut there."""
MAX_RULES_BYTES = 1 << 18
"""Maximum size of a rules file in bytes: it comes with the repository, and is stored with every session."""


FindSession = Callable[[str, str | None], SessionFacts]
"""Returns a session by its name and its project; raises `NotFound`."""


class SessionChoices:
    """The step that decides everything about a session before anything is created, and refuses what cannot be done."""

    def __init__(self, core: Core, views: SessionViews, nodes: ClusterService, find: FindSession) -> None:
        self.flow = core.flow
        self.home = core.home
        self.host = core.host
        self.views = views
        self.nodes = nodes
        self.find = find

    async def creation_events(
        self,
        request: NewSession,
        project: ProjectConfig,
        settings: ResolvedAgent,
        runtime: str,
        workspace: str,
        forge: ForgeChoice,
    ) -> tuple[e.SessionCreated, e.TaskCreated, str]:
        """Return the events that create a session and its task, and the session's id; raise `UsageError` or `Conflict`."""
        request = REDACTOR.redact_tree(request, UNREDACTED_FIELDS)  # the name and the branch are derived from its text
        layout = find_layout(project.path)
        if layout is None:
            raise UsageError(
                f"{project.path} is not a Git repository", "make one by git init, or correct the project's path"
            )
        if request.pr:
            request = self._continue_pull_request(request, project)
        request, stacked_on = self._resolve_stack(request, project, forge)
        issue = names.normalize_issue(request.issue) if request.issue else None
        tracked_issue = self.issue(project.id, issue)
        if tracked_issue is not None and tracked_issue.state != "open":
            raise Conflict(f"issue {issue} is closed", f"open it again: ao issue reopen {issue}")
        title, prompt = _title_and_prompt(request, issue, tracked_issue, project.trusted_authors)
        preferred_name = _preferred_name(request, issue, tracked_issue, title)
        name, session = self._choose_name(
            request, project, issue, preferred_name, self._workspaces_folder(project, runtime)
        )
        base = request.base or project.default_branch or default_branch(project.path) or "main"
        suggested_branch = (
            names.suggested_branch(tracked_issue.branch) if tracked_issue and project.branch_pattern is None else None
        )
        branch, existing = await self._choose_branch(
            request, project, layout, suggested_branch or names.branch_for(name, issue, project), base
        )
        if request.base and stacked_on is None:
            await self._check_base(project.path, base)
        sessions_before = tuple(self.find(other, project.id).id for other in request.after)
        task = e.TaskCreated(
            task=f"T{len(self.flow.home.tasks) + 1}",
            title=title,
            description=prompt,
            issue=issue,
            labels=tuple(dict.fromkeys([*request.labels, *(tracked_issue.labels if tracked_issue else ())])),
            priority=request.priority,
            after=self._tasks_before(sessions_before, tracked_issue),
        )
        group, group_limit = _group_and_limit(request, tracked_issue, self.flow.home.plans)
        body = e.SessionCreated(
            task=task.task,
            name=name,
            title=title,
            prompt=prompt,
            rules=standing_rules(project, settings)
            if request.kind != COORDINATOR_KIND
            else project.coordinator.rules.strip(),
            conversation=request.resume_id or None,
            agent=settings.tool,
            profile=settings.profile,
            runtime=runtime,
            workspace=workspace,
            branch=branch,
            base=base,
            repo=str(project.path),
            path=str(self._workspaces_folder(project, runtime) / name),
            link=str(project.path / ".worktrees" / name) if layout.top and runtime != CLUSTER_RUNTIME else None,
            issue=issue,
            node=request.node,
            home="" if runtime == CLUSTER_RUNTIME else self.flow.home_name,
            model=request.model,
            existing=existing,
            defer=request.defer and not prompt,
            after=sessions_before,
            priority=task.priority,
            ports=self._choose_ports(project),
            labels=task.labels,
            kind=request.kind,
            reviews=request.reviews,
            spawned=request.spawned,
            parent=request.parent,
            stack=stacked_on,
            scm=forge.name,
            tracker=tracked_issue.tracker if tracked_issue else LOCAL_FORGE,
            forge_hosted=forge.hosted,
            tracker_hosted=tracked_issue is not None and tracked_issue.hosted,
            files=_expected_files(request, tracked_issue),
            group=group,
            group_limit=group_limit,
            account=settings.account,
        )
        return body, task, session

    def _continue_pull_request(self, request: NewSession, project: ProjectConfig) -> NewSession:
        """Return the request with the branch, title and prompt to continue a pull request whose session is stopped."""
        number = request.pr.strip().lstrip("#!")
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
            return replace(
                request,
                branch=request.branch or facts.branch,
                title=request.title or pr.title,
                prompt=request.prompt or f"{task}\n\n{facts.spec.prompt}".strip(),
            )
        raise NotFound(f"{project.id} has no pull request #{number}", "see what there is: ao status")

    def _resolve_stack(
        self, request: NewSession, project: ProjectConfig, forge: ForgeChoice
    ) -> tuple[NewSession, str | None]:
        """Return the request with its base set for a stacked branch, and the session it is stacked on, or None.

        If that session's change is merged, the base is the base branch and no session is returned.
        """
        if not request.stack:
            return request, None
        if forge.hosted:
            remedy = "leave --stack out: it starts when the other one has landed"
            raise UsageError(f"stacked branches are for the local forge, not for {forge.name}", remedy)
        if len(request.after) != 1:
            raise UsageError("a stacked branch stands on one other", "name its session: --after S --stack")
        if conflicting_option := next((name for name in ("base", "branch", "pr") if getattr(request, name)), None):
            raise UsageError(
                f"--stack and --{conflicting_option} both say where the branch begins", "leave one of them out"
            )
        below = self.find(request.after[0], project.id)
        if below.project != project.id:
            raise UsageError(f"{below.id} belongs to {below.project}", f"name a session of {project.id}")
        if below.spec.kind in KINDS_WITHOUT_CHANGE:
            raise UsageError(f"{below.id} is a {below.spec.kind} and has no change", "name a session that makes one")
        is_merged = below.pr is not None and below.pr.state == "merged"
        base = below.base if is_merged else below.branch
        return replace(request, base=base), None if is_merged else below.id

    def issue(self, project: str, issue: str | None) -> Issue | None:
        """Return the issue of the project's tracker, or None for an issue of a tracker that is not read here.

        Raises `NotFound` for an unknown number if the project has issues here.
        """
        if issue is None or (tracked_issue := issue_of(self.flow.home.issues, project, issue)) is not None:
            return tracked_issue if issue else None
        if not issue.isdigit() or not any(candidate.project == project for candidate in self.flow.home.issues.values()):
            return None
        return find_issue(self.flow, project, int(issue))

    def _tasks_before(self, sessions: Sequence[str], issue: Issue | None) -> tuple[str, ...]:
        """Return the tasks that must be done first: those of the sessions, and those of the issues that this issue depends on."""
        tasks = [self.flow.sessions[session].spec.task for session in sessions]
        if issue is not None:
            issue_numbers = {str(number) for number in issue.after}
            all_tasks = self.flow.home.tasks.values()
            tasks += [task.id for task in all_tasks if task.project == issue.project and task.issue in issue_numbers]
        return tuple(dict.fromkeys(tasks))

    def _choose_name(
        self, request: NewSession, project: ProjectConfig, issue: str | None, preferred_name: str, folder: Path
    ) -> tuple[str, str]:
        """Return the name and the id of a new session; raise `Conflict` if the requested name is in use."""
        prefix = project.session_prefix
        used_names = {
            facts.name: facts
            for facts in self.flow.sessions.values()
            if facts.id == f"{prefix}-{facts.name}" or facts.spec.path == str(folder / facts.name)
        }
        if request.name:
            name = names.validate_name(request.name)
            if existing := used_names.get(name):
                remedy = "bring it back: ao restore" if existing.stopped else "look at it: ao status"
                raise Conflict(
                    f"there is a session {existing.id} already ({self.views.status(existing).name})",
                    f"{remedy} {existing.id}, or choose another name",
                )
            return name, f"{prefix}-{name}"
        if issue:
            self._refuse_second_session(project.id, issue)
        name = names.free_name(preferred_name, used_names)
        return name, f"{prefix}-{name}"

    def _workspaces_folder(self, project: ProjectConfig, runtime: str) -> Path:
        """Return the folder of a project's workspaces; it is the same on every node of a cluster."""
        if runtime == CLUSTER_RUNTIME:
            return self.nodes.workspaces_folder(project.id)
        folder = project.worktree_dir or self.home.worktrees / project.id
        if folder.is_relative_to(project.path) and not folder.resolve().is_relative_to(project.path.resolve()):
            raise UsageError(f"worktreeDir {folder} leads out of the repository", "name the folder itself")
        return folder

    def _refuse_second_session(self, project: str, issue: str) -> None:
        """Raise `Conflict` if an unfinished session works on the issue already."""
        for facts in self.flow.sessions.values():
            if facts.project == project and facts.spec.issue == issue and not facts.stopped:
                raise Conflict(
                    f"{facts.id} works on issue {issue} already", f"send it a message, or stop it: ao stop {facts.id}"
                )

    async def _choose_branch(
        self, request: NewSession, project: ProjectConfig, layout: Layout, preferred_branch: str, base: str
    ) -> tuple[str, bool]:
        """Return the branch, and whether it exists already and is to be continued."""
        reserved = {
            facts.branch: facts.id
            for facts in self.flow.sessions.values()
            if facts.project == project.id
            and not facts.stopped
            and (facts.workspace is None or facts.workspace.present)
        }

        def exists(branch: str) -> bool:
            """Return whether the branch exists, or is reserved by a session."""
            heads = (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
            return branch in reserved or any(read_ref(layout.common, ref) for ref in heads)

        if not request.base and read_head(layout.git_dir) is None and not exists(base):
            raise Conflict(f"{project.path} has no commit yet", "make a first one: git commit --allow-empty -m start")
        if request.branch:
            branch = names.normalize_branch(request.branch)
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
            if exists(branch):
                await self._refuse_checked_out(project.path, branch)
            return branch, exists(branch)
        number, branch = 1, preferred_branch
        while exists(branch):
            number += 1
            branch = f"{preferred_branch}-{number}"
        return branch, False

    async def _check_base(self, repo: Path, base: str) -> None:
        """Raise `UsageError` for an unknown base; if there is a remote, the base may exist only there."""
        git = Git(self.host, repo)
        if await git.resolve(base) is None and not (await git.run("remote")).out.strip():
            raise UsageError(f"{repo} has no base {base!r}", "git branch --all lists what there is")

    async def _refuse_checked_out(self, repo: Path, branch: str) -> None:
        """Raise `Conflict` if a worktree has the branch checked out."""
        for entry in await Git(self.host, repo).worktrees():
            if entry.branch == branch:
                raise Conflict(
                    f"the branch {branch} is checked out at {entry.path}",
                    "switch that checkout to another branch first",
                )

    def _choose_ports(self, project: ProjectConfig) -> tuple[int, ...]:
        """Return the first free block of ports of the project, or () if it configures none."""
        if project.ports is None:
            return ()
        used_ports = {
            facts.spec.ports[0]
            for facts in self.flow.sessions.values()
            if facts.spec.ports and (not facts.stopped or (facts.workspace and facts.workspace.present))
        }
        first_port = project.ports.base
        while first_port in used_ports:
            first_port += project.ports.count
        if first_port + project.ports.count > 65536:
            raise Conflict(f"{project.id} has no free block of ports", "stop sessions, or lower ports.base")
        return tuple(range(first_port, first_port + project.ports.count))


def _title_and_prompt(
    request: NewSession, issue: str | None, tracked_issue: Issue | None, trusted_authors: Sequence[str]
) -> tuple[str, str]:
    """Return the title and the prompt: those of the request, else the issue's, else each derived from the other."""
    title = clean_text(request.title).strip()
    if request.kind == COORDINATOR_KIND:
        return title, ""  # it starts idle and gets its tasks as messages
    prompt = clean_text(request.prompt).strip()
    if len(prompt.encode()) > MAX_PROMPT_BYTES:
        raise UsageError(f"the task has over {MAX_PROMPT_BYTES >> 20} MB", "put it into a file and name that")
    if tracked_issue is not None:
        issue_prompt = (
            "" if request.defer else _cut_to_limit(issue_task_text(tracked_issue, trusted_authors), tracked_issue)
        )
        return names.title_of(title or prompt) or tracked_issue.title, prompt or issue_prompt
    if not title and not prompt and issue:
        return f"Issue {issue}", "" if request.defer else f"Work on issue {issue}."
    if not title and not prompt and not request.defer:
        raise UsageError("there is no task", "say what is to be done: title, prompt or issue")
    name = request.name
    return names.title_of(title or prompt) or name, prompt or ("" if request.defer else title)


def _cut_to_limit(text: str, issue: Issue) -> str:
    """Return an issue's task text, cut to `MAX_PROMPT_BYTES`."""
    content = text.encode()
    if len(content) <= MAX_PROMPT_BYTES:
        return text
    return f"{content[:MAX_PROMPT_BYTES].decode(errors='ignore')}\n\n(The rest of issue {issue.name} is left out: it is too long.)"


def _preferred_name(request: NewSession, issue: str | None, tracked_issue: Issue | None, title: str) -> str:
    """Return the preferred name of a session: from the title of its task, or from the issue's number if only that is known."""
    if issue and tracked_issue is None and not request.title and not request.prompt:
        return f"issue-{names.slug(issue)}"
    return names.slug(title)


def _group_and_limit(request: NewSession, tracked_issue: Issue | None, plans: Mapping[str, Plan]) -> tuple[str, int]:
    """Return the session's group and how many sessions of it may work at once, from the request or from the plan of its issue."""
    plan = plans.get(tracked_issue.plan_entry.plan) if tracked_issue and tracked_issue.plan_entry else None
    if request.group or plan is None:
        return request.group, request.group_limit
    return plan.id, plan.group_limit


def _expected_files(request: NewSession, tracked_issue: Issue | None) -> tuple[str, ...]:
    """Return the files that the session is expected to change, from the request or from the plan of its issue."""
    planned_files = tracked_issue.plan_entry.files if tracked_issue and tracked_issue.plan_entry else ()
    return request.files or planned_files


def standing_rules(project: ProjectConfig, settings: ResolvedAgent) -> str:
    """Return the project's and the profile's standing rules, and the profile's skills."""
    parts = [project.agent_rules.strip(), settings.rules.strip(), skills_text(project.path, settings.skills)]
    if project.agent_rules_file is not None:
        parts.insert(1, _read_rules(project.agent_rules_file, project.path))
    return "\n\n".join(part for part in parts if part)


def _read_rules(file: Path, root: Path) -> str:
    """Return the text of the project's rules file.

    Raises `UsageError` if it leads out of the repository, is too long, or cannot be read.
    """
    try:
        real = file.resolve()
        if file.is_relative_to(root) and not real.is_relative_to(root.resolve()):
            raise UsageError(
                f"agentRulesFile {file} is a link that leads out of the repository", "name the file itself"
            )
        with open_regular_file(real) as opened:
            content = opened.read(MAX_RULES_BYTES + 1)
        if len(content) > MAX_RULES_BYTES:
            raise UsageError(
                f"agentRulesFile {file} has over {MAX_RULES_BYTES >> 10} KB", "shorten it, or name another"
            )
        return content.decode().strip()
    except (OSError, ValueError, RuntimeError) as error:
        unreadable = UsageError(f"agentRulesFile {file} cannot be read: {error}", "correct its path")
        raise resource_shortage(error) or unreadable from None
