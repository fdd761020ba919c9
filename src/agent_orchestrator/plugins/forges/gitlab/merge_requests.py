"""Merge requests at GitLab: gitlab.com and self-managed hosts (plugin slot `scm`).

A merge request is identified by its project's number and its own, which survive the renaming of a project. It is watched by conditional
requests (`change_finder.py`). Every action that may be repeated after a crash first checks whether it was already done.
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
from agent_orchestrator.plugins.forges.gitlab.change_finder import GitLabChangeFinder, job_states
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.plugins.forges.gitlab.merge import cancel_auto_merge, merge_or_enqueue
from agent_orchestrator.plugins.forges.gitlab.merge_request_reader import (
    DRAFT_PREFIX,
    MergeRequestParts,
    RestObject,
    jobs_explain_state,
    merge_request_id,
    parse_merge_request,
    people_of,
    plain_title,
)
from agent_orchestrator.plugins.forges.gitlab.permissions import DEVELOPER_LEVEL, ProjectPermissions
from agent_orchestrator.plugins.forges.gitlab.token_access import read_token_access
from agent_orchestrator.plugins.forges.shared.comment_marks import (
    MAX_TITLE_LENGTH,
    cut_to_limit,
    has_mark,
    is_same_login,
    with_mark,
)
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse
from agent_orchestrator.plugins.forges.shared.rate_limit_report import background_pause, rate_limit_lines
from agent_orchestrator.plugins.forges.shared.response_errors import error_message
from agent_orchestrator.plugins.forges.shared.tokens import require_vital_access
from agent_orchestrator.protocols.forge import (
    SCM,
    Access,
    Author,
    BaseChecks,
    Hint,
    KnownPullRequest,
    Merged,
    MergeOptions,
    MergeQueued,
    MissingPermission,
    PullRequestSpec,
    PullRequestState,
    Unmergeable,
)
from agent_orchestrator.protocols.host import Host

SETTINGS_CACHE_SECONDS = 600.0
"""Seconds for which the project's settings are remembered."""
MAX_CACHE_ENTRIES = 1_000
"""Entries of each cache of this module."""
_ID = re.compile(r"(\d{1,15})!(\d{1,12})")
"""The id of a merge request: its project's number and its own."""
_THREAD = re.compile(r"(\d{1,15})!(\d{1,12})!([0-9A-Za-z]+)")
"""The id of a discussion: that of its merge request, and its own."""
_JOB = re.compile(r"\d{1,15}/\d{1,15}")
"""The id of a job: its project's number and its own."""
_RUNNER_MARKS = re.compile(
    rb"section_(?:start|end):\d{1,15}:[^\r\n]{0,300}\r|\x1b\[[0-9;]*[A-Za-z]"
    rb"|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z \d\d[OE][+ ]?",
    re.MULTILINE,
)
"""What a runner adds to a job's log: section marks, terminal control sequences and times."""


class GitLab(SCM):
    """The merge requests of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._gitlab = GitLabHost(config, host, "scm", clock)
        fork = str(config.get("fork") or "").strip()
        if fork and "/" not in fork:
            raise UsageError(f"scm.fork: {fork!r} is no project", "write fork: group/name")
        self._fork = fork
        self._permissions = ProjectPermissions(clock)
        self._change_finder = GitLabChangeFinder(clock)
        self._settings: tuple[float, RestObject] = (0.0, {})
        self._parents: dict[str, tuple[str, ...]] = {}
        self._has_ci_file: dict[str, bool] = {}
        self._has_other_jobs: dict[str, bool] = {}
        """Pipelines that have statuses in addition to their own jobs."""

    @property
    def repo(self) -> str:
        """The project's current path, `group/name`."""
        return self._gitlab.repo

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return background_pause(self._gitlab.current_client)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of the host."""
        return rate_limit_lines(self._gitlab.current_client)

    async def configured(self) -> bool:
        """Return whether there is a token."""
        try:
            await self._gitlab.http()
        except Denied:
            return False
        return True

    async def access(self) -> Access:
        """Return the token's account and what the token may not do."""
        user, token_access = await read_token_access(
            self._gitlab, "to read and open merge requests, to comment and to push"
        )
        if any(lack.vital for lack in token_access.lacks):
            return token_access
        level, lacks = _access_level(await self._project_settings()), list(token_access.lacks)
        if level is not None and level < DEVELOPER_LEVEL and not self._fork:
            remedy = "ask for the role of a developer, or push to a fork of yours: scm.fork: you/name"
            lacks.append(
                MissingPermission(f"{token_access.author.name} may not write to {self.repo}", "", remedy, vital=True)
            )
        writes = "yes" if level is not None and level >= DEVELOPER_LEVEL else "unknown"
        return replace(
            token_access, author=replace(self._permissions.author(user), write_access=writes), lacks=tuple(lacks)
        )

    async def login(self) -> Author:
        """Return the token's account. Raise `Denied` if the token lacks something vital."""
        return require_vital_access(await self.access())

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL that Git pushes to, and its environment."""
        return self._gitlab.git_remote(self._fork or self.repo)

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL that Git fetches base branches from, and its environment."""
        return self._gitlab.git_remote(self.repo)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def find(self, branch: str) -> PullRequestState | None:
        """Return the open merge request of a branch, otherwise its newest one, or None."""
        merge_requests = await self._list_by_branch(branch)
        if not merge_requests:
            return None
        chosen = next(
            (merge_request for merge_request in merge_requests if merge_request["state"] == "opened"), merge_requests[0]
        )
        return next(iter(await self.read([merge_request_id(chosen)])), None)

    async def _list_by_branch(self, branch: str) -> list[RestObject]:
        """Return the merge requests of a branch, newest first."""
        http, project = await self._gitlab.http(), await self._gitlab.project_id()
        source = await self._gitlab.project_id(self._fork) if self._fork else project
        query = urlencode({"source_branch": branch, "state": "all", "scope": "all", "order_by": "created_at"})
        answer = await http.get(f"projects/{project}/merge_requests?{query}&sort=desc&per_page=20")
        return [
            merge_request
            for merge_request in answer.data
            if merge_request.get("source_project_id") == source and merge_request["source_branch"] == branch
        ]

    async def get(self, number: int) -> PullRequestState:
        """Return a merge request by its number. Raise `NotFound` if there is none."""
        pull_states = await self.read([f"{await self._gitlab.project_id()}!{number}"])
        if not pull_states:
            raise NotFound(
                f"there is no merge request !{number} in {self.repo}", "see glab mr list, or GitLab's own page"
            )
        return pull_states[0]

    async def read(self, ids: Sequence[str]) -> list[PullRequestState]:
        """Return the merge requests with these ids, with all their pages.

        Those that GitLab temporarily fails to read are left out; if it fails to read all of them, its error is raised.
        """
        bases: dict[str, str] = {}
        results = await asyncio.gather(*(self._read_merge_request(name, bases) for name in ids), return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, Temporary) or error.until is not None or len(errors) == len(ids):
                raise error
        return [result for result in results if isinstance(result, PullRequestState)]

    async def _read_merge_request(self, pull_id: str, bases: dict[str, str]) -> PullRequestState | None:
        """Read a merge request with all its parts; return None if it does not exist.

        `bases`: the heads of base branches that were already read.
        """
        match = _ID.fullmatch(pull_id)
        if match is None:
            return None
        http, our_login = await self._gitlab.http(), await self._gitlab.login()
        project, root = match[1], f"projects/{match[1]}/merge_requests/{match[2]}"
        try:
            whole = (await http.get(root)).data
        except NotFound:
            return None
        current_path = str((whole.get("references") or {}).get("full") or "").partition("!")[0]
        self._gitlab.repo = current_path or self._gitlab.repo
        pipeline = await self._head_pipeline(http, whole)
        approvals, discussions, jobs = await asyncio.gather(
            _read_part(self._approvals(http, root)),
            _read_part(http.get_pages(f"{root}/discussions?per_page=100")),
            _read_part(self._jobs(http, pipeline)),
        )
        reviewers: Any = []
        if whole.get("reviewers"):
            reviewers = await _read_part(http.get_pages(f"{root}/reviewers?per_page=100"))
        base = str(whole.get("target_branch") or "")
        if base not in bases:
            bases[base] = await _branch_head(http, f"projects/{project}/repository/branches/{quote(base, safe='')}")
        checks_expected = None
        if pipeline is None and whole.get("state") == "opened" and jobs is not None:
            checks_expected = await self._expects_pipeline(http, whole)
        parts = MergeRequestParts(
            whole,
            approvals,
            discussions,
            reviewers,
            jobs,
            pipeline,
            bases[base],
            checks_expected,
            await self._fork_path(http, whole),
        )
        await self._permissions.read_permissions(http, int(project), people_of(parts))
        pull = parse_merge_request(parts, self._permissions.author, our_login)
        is_running = jobs is not None and any(check.state in ("queued", "running") for check in pull.checks)
        jobs_path = _jobs_path(pipeline) if pipeline and is_running else ""
        own_states = job_states([job for job in jobs or () if "stage" in job])
        self._change_finder.record_read(pull, whole, jobs_path, own_states)
        return pull

    async def _approvals(self, http: ForgeHttpClient, path: str) -> RestObject:
        """Return the approvals of a merge request; empty if the host does not offer them."""
        answer = await http.call("GET", f"{path}/approvals", safe=True, allow=(403, 404))
        return answer.data if answer.status == 200 and isinstance(answer.data, Mapping) else {}

    async def _head_pipeline(self, http: ForgeHttpClient, whole: RestObject) -> RestObject | None:
        """Return the pipeline of the head, or None.

        Right after a push GitLab still names the pipeline of the former head. A merged-results pipeline runs on a separate commit, whose
        parents include the head.
        """
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
            _evict_oldest(self._parents)
        return pipeline if head in self._parents[sha] else None

    async def _jobs(self, http: ForgeHttpClient, pipeline: RestObject | None) -> list[RestObject]:
        """Return the jobs of a pipeline. External statuses and downstream pipelines are added if the jobs do not account for its state."""
        if pipeline is None:
            return []
        jobs = await http.get_pages(_jobs_path(pipeline))
        number = str(pipeline["id"])
        if jobs_explain_state(pipeline, jobs) and number not in self._has_other_jobs:
            return jobs
        project, sha = pipeline.get("project_id"), pipeline.get("sha")
        query = urlencode({"pipeline_id": number, "per_page": 100})
        statuses = await http.get_pages(f"projects/{project}/repository/commits/{sha}/statuses?{query}")
        job_ids = {job.get("id") for job in jobs}
        other_statuses = [status for status in statuses if status.get("id") not in job_ids]
        if other_statuses:
            self._has_other_jobs[number] = True
            _evict_oldest(self._has_other_jobs)
        return [*jobs, *other_statuses]

    async def _project_settings(self) -> RestObject:
        """Return the project's settings, remembered for a while."""
        until, settings = self._settings
        if self._clock() >= until:
            http = await self._gitlab.http()
            settings = (await http.get(f"projects/{await self._gitlab.project_id()}")).data
            self._settings = (self._clock() + SETTINGS_CACHE_SECONDS, settings)
        return settings

    async def _expects_pipeline(self, http: ForgeHttpClient, whole: RestObject) -> bool | None:
        """Return False if the head will have no pipeline because CI is off or there is no CI file; None if that is not known."""
        settings = await self._project_settings()
        path = str(settings.get("ci_config_path") or ".gitlab-ci.yml")
        if settings.get("jobs_enabled") is False or settings.get("builds_access_level") == "disabled":
            return False
        if settings.get("auto_devops_enabled") or "@" in path or "://" in path:
            return None
        head = str(whole.get("sha"))
        if head not in self._has_ci_file:
            source = whole.get("source_project_id") or whole.get("project_id")
            file = f"projects/{source}/repository/files/{quote(path, safe='')}?ref={quote(head, safe='')}"
            try:
                answer = await http.call("HEAD", file, safe=True, allow=(404,))
            except AoError:
                return None
            self._has_ci_file[head] = answer.status != 404
            _evict_oldest(self._has_ci_file)
        return None if self._has_ci_file[head] else False

    async def _fork_path(self, http: ForgeHttpClient, whole: RestObject) -> str:
        """Return the path of the fork that a merge request comes from, "" if it is none, or "?" if it cannot be read."""
        source = whole.get("source_project_id")
        if source == whole.get("target_project_id"):
            return ""
        try:
            answer = await http.get(f"projects/{source}", keep=lambda data: str(data.get("path_with_namespace") or "?"))
        except AoError:
            return "?"
        return str(answer.data)

    def bases(self) -> Mapping[str, BaseChecks]:
        """Return the checks of the base branches as of the last poll."""
        return self._change_finder.base_checks

    async def changed(self, pulls: Sequence[KnownPullRequest]) -> Hint:
        """Return what may have changed since the last call."""
        return await self._change_finder.find_changes(
            await self._gitlab.http(), await self._gitlab.project_id(), self.repo, pulls
        )

    # -- doing ---------------------------------------------------------------------------------------------------------

    async def open(self, spec: PullRequestSpec) -> PullRequestState:
        """Open a merge request and return it. If the branch already has an open one, return that."""
        existing = await self._find_open(spec.branch)
        if existing is not None:
            return existing
        http, project = await self._gitlab.http(), await self._gitlab.project_id()
        source = await self._gitlab.project_id(self._fork) if self._fork else project
        title = f"Draft: {spec.title}" if spec.draft and not DRAFT_PREFIX.match(spec.title) else spec.title
        body = {
            "source_branch": spec.branch,
            "target_branch": spec.base,
            "target_project_id": project,
            "title": title[:MAX_TITLE_LENGTH],
            "description": cut_to_limit(spec.body),
        }
        answer = await http.call("POST", f"projects/{source}/merge_requests", body, allow=(400, 409, 422))
        if answer.status >= 400:
            existing = await self._find_open(spec.branch)
            if existing is None:
                raise _open_error(http, spec, answer)
            return existing
        pull_states = await self.read([merge_request_id(answer.data)])
        if not pull_states:
            raise Temporary(f"the merge request !{answer.data.get('iid')} was opened, but cannot be read yet")
        return pull_states[0]

    async def _find_open(self, branch: str) -> PullRequestState | None:
        """Return the open merge request of a branch, or None."""
        open_ids = [
            merge_request_id(merge_request)
            for merge_request in await self._list_by_branch(branch)
            if merge_request["state"] == "opened"
        ]
        return next(iter(await self.read(open_ids[:1])), None) if open_ids else None

    async def _update(self, pull: PullRequestState, fields: Mapping[str, Any]) -> RestObject:
        """Update fields of a merge request and return its new data."""
        http = await self._gitlab.http()
        answer = await http.call("PUT", _merge_request_path(pull), dict(fields), safe=True)
        return answer.data if isinstance(answer.data, Mapping) else {}

    async def ready(self, pull: PullRequestState) -> None:
        """Turn a draft into a regular merge request."""
        current = (await (await self._gitlab.http()).get(_merge_request_path(pull))).data
        if current.get("draft"):
            await self._update(pull, {"title": plain_title(str(current.get("title")))})

    async def close(self, pull: PullRequestState) -> None:
        """Close a merge request without merging it."""
        await self._update(pull, {"state_event": "close"})

    async def merge(self, pull: PullRequestState, how: MergeOptions) -> Merged | MergeQueued | Unmergeable:
        """Merge exactly `how.head`, or have GitLab merge it later."""
        return await merge_or_enqueue(await self._gitlab.http(), pull, how)

    async def cancel_merge(self, pull: PullRequestState) -> None:
        """Cancel an automatic merge and leave the merge train."""
        await cancel_auto_merge(await self._gitlab.http(), pull)

    async def comment(self, pull: PullRequestState, text: str, key: str) -> str:
        """Comment on the merge request once and return the comment's id; if it was already posted, return that one's id."""
        return await self._post_once(
            f"{_merge_request_path(pull)}/notes", f"{_merge_request_path(pull)}/notes?per_page=100", text, key
        )

    async def reply(self, pull: PullRequestState, thread: str, text: str, key: str) -> str:
        """Reply in a discussion once and return the reply's id; if it was already posted, return that one's id."""
        path = _thread_path(thread)
        try:
            return await self._post_once(f"{path}/notes", path, text, key)
        except NotFound:
            raise NotFound(f"the discussion is gone from !{pull.number}") from None

    async def _post_once(self, notes_path: str, existing_path: str, text: str, key: str) -> str:
        """Post a note with our mark, unless an existing note has the mark and is ours; return the note's id.

        `notes_path`: the path to post to; `existing_path`: the listing of notes, or the discussion, to search.
        """
        http, our_login = await self._gitlab.http(), await self._gitlab.login()
        if existing_path == notes_path.removesuffix("/notes"):
            notes = ((await http.get(existing_path)).data or {}).get("notes") or []
        else:
            notes = await http.get_pages(existing_path)
        for note in notes:
            if has_mark(str(note.get("body")), key) and is_same_login(
                our_login, str((note.get("author") or {}).get("username"))
            ):
                return str(note["id"])
        answer = await http.call("POST", notes_path, {"body": with_mark(text, key)})
        return str(answer.data["id"])

    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""
        http = await self._gitlab.http()
        await http.call("PUT", _thread_path(thread), {"resolved": True}, safe=True)

    async def request_review(self, pull: PullRequestState, people: Sequence[str]) -> None:
        """Request reviews from people, in addition to those who are reviewers already."""
        current = (await (await self._gitlab.http()).get(_merge_request_path(pull))).data
        reviewer_ids = [int(reviewer["id"]) for reviewer in current.get("reviewers") or []]
        for name in people:
            user_id = await self._gitlab.user_id(name)
            if user_id is None:
                raise NotFound(f"GitLab has no user {name}", "write the name that his page has in its address")
            reviewer_ids.append(user_id)
        updated = await self._update(pull, {"reviewer_ids": list(dict.fromkeys(reviewer_ids))})
        reviewers = {str(reviewer.get("username")).casefold() for reviewer in updated.get("reviewers") or ()}
        if missing := [name for name in people if name.removeprefix("@").casefold() not in reviewers]:
            raise UsageError(
                f"GitLab does not ask {', '.join(missing)} to look at !{pull.number}",
                "name members of the project; some plans of GitLab's take but one reviewer, who must be taken off there",
            )

    async def rerun(self, pull: PullRequestState) -> int:
        """Rerun the failed jobs of the head's pipeline, and return how many there are."""
        http = await self._gitlab.http()
        pipeline = await self._head_pipeline(http, (await http.get(_merge_request_path(pull))).data)
        if pipeline is None:
            return 0
        jobs = await http.get_pages(_jobs_path(pipeline))
        failed = [job for job in jobs if job.get("status") in ("failed", "canceled")]
        if not failed:
            return 0
        path = f"projects/{pipeline.get('project_id')}/pipelines/{pipeline['id']}/retry"
        answer = await http.call("POST", path, {}, allow=(400, 403, 409, 422))
        if answer.status >= 300:
            raise UsageError(f"GitLab does not run the jobs of !{pull.number} again: {error_message(answer.data)}")
        return len(failed)

    async def log(self, job: str, most: int) -> bytes:
        """Return the end of a job's log, without what the runner adds."""
        if not _JOB.fullmatch(job):
            raise NotFound(f"{job!r} is no job of GitLab")
        project, _, number = job.partition("/")
        http = await self._gitlab.http()
        return _RUNNER_MARKS.sub(b"", await http.get_tail(f"projects/{project}/jobs/{number}/trace", most))


async def _read_part(request: Awaitable[Any]) -> Any:
    """Return a part of a merge request, or None if it cannot be read now. Raise `Temporary` if the host demands a pause."""
    try:
        return await request
    except Temporary as error:
        if error.until is not None:
            raise
        return None
    except (Denied, NotFound):
        return None


async def _branch_head(http: ForgeHttpClient, path: str) -> str:
    """Return the commit that a branch is at, or "" if it cannot be read."""
    try:
        answer = await http.get(path, keep=lambda data: str((data.get("commit") or {}).get("id") or ""))
    except (Denied, NotFound):
        return ""
    return str(answer.data)


def _merge_request_path(pull: PullRequestState) -> str:
    """Return the REST path of a merge request."""
    project, _, number = pull.id.partition("!")
    return f"projects/{project}/merge_requests/{number}"


def _thread_path(thread: str) -> str:
    """Return the REST path of a discussion, or raise `NotFound`."""
    match = _THREAD.fullmatch(thread)
    if match is None:
        raise NotFound(f"{thread!r} is no discussion of GitLab")
    return f"projects/{match[1]}/merge_requests/{match[2]}/discussions/{match[3]}"


def _jobs_path(pipeline: RestObject) -> str:
    """Return the REST path of a pipeline's jobs."""
    return f"projects/{pipeline.get('project_id')}/pipelines/{pipeline.get('id')}/jobs?per_page=100"


def _access_level(project: RestObject) -> int | None:
    """Return our access level in a project, or None if the answer does not name it."""
    permissions = project.get("permissions")
    if not isinstance(permissions, Mapping):
        return None
    levels = [(permissions.get(key) or {}).get("access_level") for key in ("project_access", "group_access")]
    return max((level for level in levels if isinstance(level, int)), default=0)


def _open_error(http: ForgeHttpClient, spec: PullRequestSpec, answer: ForgeResponse) -> UsageError:
    """Return the error for a merge request that GitLab refused to open."""
    message = error_message(answer.data)
    remedy = "push the branch first" if "source branch" in message.lower() else ""
    return UsageError(f"{http.host_text.name} opens no merge request for {spec.branch}: {message}", remedy)


def _evict_oldest(cache: dict[str, Any]) -> None:
    """Delete the oldest entries of a cache beyond `MAX_CACHE_ENTRIES`."""
    while len(cache) > MAX_CACHE_ENTRIES:
        del cache[next(iter(cache))]
