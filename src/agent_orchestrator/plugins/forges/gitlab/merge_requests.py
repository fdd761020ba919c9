"""Merge requests at GitLab: gitlab.com and one's own hosts.

A merge request is known by its project's number and its own, which a renamed project keeps. It is watched by conditional requests
(`polls.py`). Whatever may be repeated after a crash looks first whether it was done.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github.comment_marks import LONGEST_TITLE, bears, fitting, marked
from agent_orchestrator.plugins.forges.github.people import same
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.plugins.forges.gitlab.merge import call_off, land
from agent_orchestrator.plugins.forges.gitlab.merge_request_reader import (
    DRAFT,
    Node,
    Parts,
    explained,
    name_of,
    people_of,
    plain_title,
    pull_state,
)
from agent_orchestrator.plugins.forges.gitlab.people import DEVELOPER, Members
from agent_orchestrator.plugins.forges.gitlab.polls import Poll, job_states
from agent_orchestrator.plugins.forges.gitlab.token_access import access
from agent_orchestrator.plugins.forges.shared.http import Answer, Http
from agent_orchestrator.plugins.forges.shared.rate_limits import lines, longest_wait
from agent_orchestrator.plugins.forges.shared.refusals import allowed, told
from agent_orchestrator.protocols.forge import (
    Access,
    Author,
    BaseChecks,
    Hint,
    Known,
    Lack,
    Merged,
    Merging,
    PullSpec,
    PullState,
    Unmergeable,
    Waiting,
)
from agent_orchestrator.protocols.host import Host

SETTINGS_FOR = 600.0
REMEMBERED = 1_000
_NAME = re.compile(r"(\d{1,15})!(\d{1,12})")
_THREAD = re.compile(r"(\d{1,15})!(\d{1,12})!([0-9A-Za-z]+)")
_JOB = re.compile(r"\d{1,15}/\d{1,15}")
_NOISE = re.compile(
    rb"section_(?:start|end):\d{1,15}:[^\r\n]{0,300}\r|\x1b\[[0-9;]*[A-Za-z]"
    rb"|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z \d\d[OE][+ ]?",
    re.MULTILINE,
)


class GitLab:
    """The merge requests of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._at = GitLabHost(config, host, "scm", clock)
        fork = str(config.get("fork") or "").strip()
        if fork and "/" not in fork:
            raise UsageError(f"scm.fork: {fork!r} is no project", "write fork: group/name")
        self._fork = fork
        self._members = Members(clock)
        self._poll = Poll(clock)
        self._settings: tuple[float, Node] = (0.0, {})
        self._parents: dict[str, tuple[str, ...]] = {}
        self._configured: dict[str, bool] = {}
        self._others: dict[str, bool] = {}
        """Pipelines with more than their own jobs."""

    @property
    def repo(self) -> str:
        """`group/name`, as it is called now."""
        return self._at.repo

    def pause(self) -> float:
        """Seconds that background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """What is left of the host's grants."""
        return lines(self._at.opened)

    async def configured(self) -> bool:
        """Is there a token?"""
        try:
            await self._at.http()
        except Denied:
            return False
        return True

    async def access(self) -> Access:
        """Who we are, and what the token lets us do."""
        user, found = await access(self._at, "to read and open merge requests, to comment and to push")
        if any(lack.vital for lack in found.lacks):
            return found
        level, lacks = _level(await self._project()), list(found.lacks)
        if level is not None and level < DEVELOPER and not self._fork:
            remedy = "ask for the role of a developer, or push to a fork of yours: scm.fork: you/name"
            lacks.append(Lack(f"{found.author.name} may not write to {self.repo}", "", remedy, vital=True))
        writes = "yes" if level is not None and level >= DEVELOPER else "unknown"
        return replace(found, author=replace(self._members.author(user), write_access=writes), lacks=tuple(lacks))

    async def login(self) -> Author:
        """Who we are, if the token may do what we do."""
        return allowed(await self.access())

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Where Git pushes to."""
        return self._at.git(self._fork or self.repo)

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Where Git fetches bases from."""
        return self._at.git(self.repo)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def find(self, branch: str) -> PullState | None:
        """The open merge request of a branch, else its newest one."""
        listed = await self._listed(branch)
        if not listed:
            return None
        chosen = next((one for one in listed if one["state"] == "opened"), listed[0])
        return next(iter(await self.read([name_of(chosen)])), None)

    async def _listed(self, branch: str) -> list[Node]:
        """Its merge requests, the newest first."""
        http, project = await self._at.http(), await self._at.project()
        source = await self._at.project(self._fork) if self._fork else project
        query = urlencode({"source_branch": branch, "state": "all", "scope": "all", "order_by": "created_at"})
        answer = await http.get(f"projects/{project}/merge_requests?{query}&sort=desc&per_page=20")
        return [one for one in answer.data if one.get("source_project_id") == source and one["source_branch"] == branch]

    async def get(self, number: int) -> PullState:
        """A merge request by its number."""
        found = await self.read([f"{await self._at.project()}!{number}"])
        if not found:
            raise NotFound(
                f"there is no merge request !{number} in {self.repo}", "see glab mr list, or GitLab's own page"
            )
        return found[0]

    async def read(self, ids: Sequence[str]) -> list[PullState]:
        """Merge requests with all their pages."""
        bases: dict[str, str] = {}
        found = await asyncio.gather(*(self._one(name, bases) for name in ids), return_exceptions=True)
        errors = [one for one in found if isinstance(one, BaseException)]
        for error in errors:
            if not isinstance(error, Temporary) or error.until is not None or len(errors) == len(ids):
                raise error
        return [one for one in found if isinstance(one, PullState)]

    async def _one(self, name: str, bases: dict[str, str]) -> PullState | None:
        parsed = _NAME.fullmatch(name)
        if parsed is None:
            return None
        http, us = await self._at.http(), await self._at.login()
        project, root = parsed[1], f"projects/{parsed[1]}/merge_requests/{parsed[2]}"
        try:
            whole = (await http.get(root)).data
        except NotFound:
            return None
        full = str((whole.get("references") or {}).get("full") or "").partition("!")[0]
        self._at.repo = full or self._at.repo
        pipeline = await self._pipeline(http, whole)
        approvals, discussions, jobs = await asyncio.gather(
            _part(self._approvals(http, root)),
            _part(http.pages(f"{root}/discussions?per_page=100")),
            _part(self._jobs(http, pipeline)),
        )
        reviewers: Any = []
        if whole.get("reviewers"):
            reviewers = await _part(http.pages(f"{root}/reviewers?per_page=100"))
        base = str(whole.get("target_branch") or "")
        if base not in bases:
            bases[base] = await _branch_head(http, f"projects/{project}/repository/branches/{quote(base, safe='')}")
        expected = None
        if pipeline is None and whole.get("state") == "opened" and jobs is not None:
            expected = await self._expected(http, whole)
        parts = Parts(
            whole,
            approvals,
            discussions,
            reviewers,
            jobs,
            pipeline,
            bases[base],
            expected,
            await self._fork_of(http, whole),
        )
        await self._members.learn(http, int(project), people_of(parts))
        pull = pull_state(parts, self._members.author, us)
        running = jobs is not None and any(check.state in ("queued", "running") for check in pull.checks)
        listing = _jobs_path(pipeline) if pipeline and running else ""
        own = job_states([job for job in jobs or () if "stage" in job])
        self._poll.was_read(pull, whole, listing, own)
        return pull

    async def _approvals(self, http: Http, root: str) -> Node:
        answer = await http.call("GET", f"{root}/approvals", safe=True, allow=(403, 404))
        return answer.data if answer.status == 200 and isinstance(answer.data, Mapping) else {}

    async def _pipeline(self, http: Http, whole: Node) -> Node | None:
        """The pipeline of its head. Right after a push it is still the one before; one of merged results runs on a commit of its own."""
        pipeline = whole.get("head_pipeline")
        if not isinstance(pipeline, Mapping):
            return None
        head, sha = str(whole.get("sha")), str(pipeline.get("sha"))
        if sha == head:
            return pipeline
        if not str(pipeline.get("ref") or "").startswith("refs/merge-requests/"):
            return None
        if sha not in self._parents:
            try:
                answer = await http.get(f"projects/{pipeline.get('project_id')}/repository/commits/{sha}")
                self._parents[sha] = tuple(answer.data.get("parent_ids") or ())
            except NotFound:
                self._parents[sha] = ()
            _bounded(self._parents)
        return pipeline if head in self._parents[sha] else None

    async def _jobs(self, http: Http, pipeline: Node | None) -> list[Node]:
        """The jobs of a pipeline; with other systems' statuses and downstream pipelines where there are such."""
        if pipeline is None:
            return []
        jobs = await http.pages(_jobs_path(pipeline))
        number = str(pipeline["id"])
        if explained(pipeline, jobs) and number not in self._others:
            return jobs
        project, sha = pipeline.get("project_id"), pipeline.get("sha")
        query = urlencode({"pipeline_id": number, "per_page": 100})
        every = await http.pages(f"projects/{project}/repository/commits/{sha}/statuses?{query}")
        own = {job.get("id") for job in jobs}
        others = [one for one in every if one.get("id") not in own]
        if others:
            self._others[number] = True
            _bounded(self._others)
        return [*jobs, *others]

    async def _project(self) -> Node:
        """The project's settings."""
        until, known = self._settings
        if self._clock() >= until:
            http = await self._at.http()
            known = (await http.get(f"projects/{await self._at.project()}")).data
            self._settings = (self._clock() + SETTINGS_FOR, known)
        return known

    async def _expected(self, http: Http, whole: Node) -> bool | None:
        """Will there be a pipeline: does the head have a file that says what to run?"""
        settings = await self._project()
        path = str(settings.get("ci_config_path") or ".gitlab-ci.yml")
        if settings.get("jobs_enabled") is False or settings.get("builds_access_level") == "disabled":
            return False
        if settings.get("auto_devops_enabled") or "@" in path or "://" in path:
            return None
        head = str(whole.get("sha"))
        if head not in self._configured:
            source = whole.get("source_project_id") or whole.get("project_id")
            file = f"projects/{source}/repository/files/{quote(path, safe='')}?ref={quote(head, safe='')}"
            try:
                answer = await http.call("HEAD", file, safe=True, allow=(404,))
            except AoError:
                return None
            self._configured[head] = answer.status != 404
            _bounded(self._configured)
        return None if self._configured[head] else False

    async def _fork_of(self, http: Http, whole: Node) -> str:
        source = whole.get("source_project_id")
        if source == whole.get("target_project_id"):
            return ""
        try:
            answer = await http.get(f"projects/{source}", keep=lambda data: str(data.get("path_with_namespace") or "?"))
        except AoError:
            return "?"
        return str(answer.data)

    def bases(self) -> Mapping[str, BaseChecks]:
        """How the branches that changes land on were at the last poll."""
        return self._poll.bases

    async def changed(self, known: Sequence[Known]) -> Hint:
        """What may have changed since the last call."""
        return await self._poll.changed(await self._at.http(), await self._at.project(), self.repo, known)

    # -- doing ---------------------------------------------------------------------------------------------------------

    async def open(self, spec: PullSpec) -> PullState:
        """Open a merge request, unless there is one."""
        existing = await self._open_one(spec.branch)
        if existing is not None:
            return existing
        http, project = await self._at.http(), await self._at.project()
        source = await self._at.project(self._fork) if self._fork else project
        title = f"Draft: {spec.title}" if spec.draft and not DRAFT.match(spec.title) else spec.title
        body = {
            "source_branch": spec.branch,
            "target_branch": spec.base,
            "target_project_id": project,
            "title": title[:LONGEST_TITLE],
            "description": fitting(spec.body),
        }
        answer = await http.call("POST", f"projects/{source}/merge_requests", body, allow=(400, 409, 422))
        if answer.status >= 400:
            existing = await self._open_one(spec.branch)
            if existing is None:
                raise _not_opened(http, spec, answer)
            return existing
        found = await self.read([name_of(answer.data)])
        if not found:
            raise Temporary(f"the merge request !{answer.data.get('iid')} was opened, but cannot be read yet")
        return found[0]

    async def _open_one(self, branch: str) -> PullState | None:
        found = [name_of(one) for one in await self._listed(branch) if one["state"] == "opened"]
        return next(iter(await self.read(found[:1])), None) if found else None

    async def _change(self, pull: PullState, new: Mapping[str, Any]) -> Node:
        http = await self._at.http()
        answer = await http.call("PUT", _root(pull), dict(new), safe=True)
        return answer.data if isinstance(answer.data, Mapping) else {}

    async def ready(self, pull: PullState) -> None:
        """No draft any more."""
        now = (await (await self._at.http()).get(_root(pull))).data
        if now.get("draft"):
            await self._change(pull, {"title": plain_title(str(now.get("title")))})

    async def close(self, pull: PullState) -> None:
        """Close without landing."""
        await self._change(pull, {"state_event": "close"})

    async def merge(self, pull: PullState, how: Merging) -> Merged | Waiting | Unmergeable:
        """Land exactly `how.head`, or have GitLab do so."""
        return await land(await self._at.http(), pull, how)

    async def call_off(self, pull: PullState) -> None:
        """It lands by itself no more."""
        await call_off(await self._at.http(), pull)

    async def comment(self, pull: PullState, text: str, key: str) -> str:
        """Say something about the whole, once."""
        return await self._say(f"{_root(pull)}/notes", f"{_root(pull)}/notes?per_page=100", text, key)

    async def reply(self, pull: PullState, thread: str, text: str, key: str) -> str:
        """Answer in a discussion, once."""
        path = _thread_path(thread)
        try:
            return await self._say(f"{path}/notes", path, text, key)
        except NotFound:
            raise NotFound(f"the discussion is gone from !{pull.number}") from None

    async def _say(self, to: str, among: str, text: str, key: str) -> str:
        http, us = await self._at.http(), await self._at.login()
        if among == to.removesuffix("/notes"):
            said = ((await http.get(among)).data or {}).get("notes") or []
        else:
            said = await http.pages(among)
        for note in said:
            if bears(str(note.get("body")), key) and same(us, str((note.get("author") or {}).get("username"))):
                return str(note["id"])
        answer = await http.call("POST", to, {"body": marked(text, key)})
        return str(answer.data["id"])

    async def resolve(self, thread: str) -> None:
        """A discussion is settled."""
        http = await self._at.http()
        await http.call("PUT", _thread_path(thread), {"resolved": True}, safe=True)

    async def request_review(self, pull: PullState, people: Sequence[str]) -> None:
        """Ask people to look at it, beside those who were asked already."""
        now = (await (await self._at.http()).get(_root(pull))).data
        wanted = [int(one["id"]) for one in now.get("reviewers") or []]
        for name in people:
            number = await self._at.person(name)
            if number is None:
                raise NotFound(f"GitLab has no user {name}", "write the name that his page has in its address")
            wanted.append(number)
        after = await self._change(pull, {"reviewer_ids": list(dict.fromkeys(wanted))})
        asked = {str(one.get("username")).casefold() for one in after.get("reviewers") or ()}
        if left := [name for name in people if name.removeprefix("@").casefold() not in asked]:
            raise UsageError(
                f"GitLab does not ask {', '.join(left)} to look at !{pull.number}",
                "name members of the project; some plans of GitLab's take but one reviewer, who must be taken off there",
            )

    async def rerun(self, pull: PullState) -> int:
        """Run what failed in its head's pipeline again."""
        http = await self._at.http()
        pipeline = await self._pipeline(http, (await http.get(_root(pull))).data)
        if pipeline is None:
            return 0
        jobs = await http.pages(_jobs_path(pipeline))
        failed = [job for job in jobs if job.get("status") in ("failed", "canceled")]
        if not failed:
            return 0
        path = f"projects/{pipeline.get('project_id')}/pipelines/{pipeline['id']}/retry"
        answer = await http.call("POST", path, {}, allow=(400, 403, 409, 422))
        if answer.status >= 300:
            raise UsageError(f"GitLab does not run the jobs of !{pull.number} again: {told(answer.data)}")
        return len(failed)

    async def log(self, job: str, most: int) -> bytes:
        """The end of what a job printed, without what its runner puts between the lines."""
        if not _JOB.fullmatch(job):
            raise NotFound(f"{job!r} is no job of GitLab")
        project, _, number = job.partition("/")
        http = await self._at.http()
        return _NOISE.sub(b"", await http.tail(f"projects/{project}/jobs/{number}/trace", most))


async def _part(reading: Awaitable[Any]) -> Any:
    """A part of a merge request; none where it cannot be read just now."""
    try:
        return await reading
    except Temporary as error:
        if error.until is not None:
            raise
        return None
    except (Denied, NotFound):
        return None


async def _branch_head(http: Http, path: str) -> str:
    """The commit that a branch is at; nothing where that cannot be known."""
    try:
        answer = await http.get(path, keep=lambda data: str((data.get("commit") or {}).get("id") or ""))
    except (Denied, NotFound):
        return ""
    return str(answer.data)


def _root(pull: PullState) -> str:
    project, _, number = pull.id.partition("!")
    return f"projects/{project}/merge_requests/{number}"


def _thread_path(thread: str) -> str:
    found = _THREAD.fullmatch(thread)
    if found is None:
        raise NotFound(f"{thread!r} is no discussion of GitLab")
    return f"projects/{found[1]}/merge_requests/{found[2]}/discussions/{found[3]}"


def _jobs_path(pipeline: Node) -> str:
    return f"projects/{pipeline.get('project_id')}/pipelines/{pipeline.get('id')}/jobs?per_page=100"


def _level(project: Node) -> int | None:
    """Our access level in a project, as far as it is told."""
    given = project.get("permissions")
    if not isinstance(given, Mapping):
        return None
    levels = [(given.get(key) or {}).get("access_level") for key in ("project_access", "group_access")]
    return max((level for level in levels if isinstance(level, int)), default=0)


def _not_opened(http: Http, spec: PullSpec, answer: Answer) -> UsageError:
    said = told(answer.data)
    remedy = "push the branch first" if "source branch" in said.lower() else ""
    return UsageError(f"{http.speaker.name} opens no merge request for {spec.branch}: {said}", remedy)


def _bounded(known: dict[str, Any]) -> None:
    while len(known) > REMEMBERED:
        del known[next(iter(known))]
