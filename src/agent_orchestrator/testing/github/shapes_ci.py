"""JSON of commits, branches, checks, statuses, workflow runs, jobs and hooks."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.shapes import GitHubShapes, Json
from agent_orchestrator.testing.github.state import (
    CheckSuite,
    CommitStatus,
    GitHubCheckRun,
    GitHubDelivery,
    GitHubPullRequest,
    GitHubUser,
    GitHubWebhook,
    Repo,
    WorkflowRun,
)

APPS = {"github-actions": (15368, "GitHub Actions"), "checks-app": (90210, "Checks App")}
GITHUB_ORGANIZATION = GitHubUser(id=9919, node_id="O_kgDOGitHub", created_at="2008-05-11T04:37:31Z",
    updated_at="2020-01-01T00:00:00Z", login="github",
              kind="Organization")  # fmt: skip


class CiShapes(GitHubShapes):
    """All JSON shapes: those of `GitHubShapes`, and of Git, CI and hooks."""

    def commit(self, repo: Repo, sha: str) -> Json:
        data, url = bare_repository.commit(repo.path, sha), self.repo_url(repo)
        return {
            "sha": data.sha, "node_id": f"C_{data.sha}",
            "commit": {
                "author": {"name": data.author, "email": data.email, "date": data.date},
                "committer": {"name": data.committer, "email": data.committer_email, "date": data.committed},
                "message": data.message, "tree": {"sha": data.tree, "url": f"{url}/git/trees/{data.tree}"},
                "url": f"{url}/git/commits/{data.sha}", "comment_count": 0,
                "verification": {"verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None},
            },
            "url": f"{url}/commits/{data.sha}", "html_url": f"{self.repo_page(repo)}/commit/{data.sha}",
            "comments_url": f"{url}/commits/{data.sha}/comments", "author": None, "committer": None,
            "parents": [
                {"sha": parent, "url": f"{url}/commits/{parent}", "html_url": f"{self.repo_page(repo)}/commit/{parent}"}
                for parent in data.parents
            ],
        }  # fmt: skip

    def simple_commit(self, repo: Repo, sha: str) -> Json:
        data = bare_repository.commit(repo.path, sha)
        return {
            "id": data.sha, "tree_id": data.tree, "message": data.message, "timestamp": data.committed,
            "author": {"name": data.author, "email": data.email},
            "committer": {"name": data.committer, "email": data.committer_email},
        }  # fmt: skip

    def pushed_commit(self, repo: Repo, sha: str) -> Json:
        data = bare_repository.commit(repo.path, sha)
        files = bare_repository.changes(repo.path, data.parents[0], sha) if data.parents else ()
        return self.simple_commit(repo, sha) | {
            "distinct": True, "url": f"{self.repo_page(repo)}/commit/{sha}",
            "added": [file.path for file in files if file.status == "added"],
            "removed": [file.path for file in files if file.status == "removed"],
            "modified": [file.path for file in files if file.status == "modified"],
        }  # fmt: skip

    def file(self, pull: GitHubPullRequest, change: bare_repository.FileChange) -> Json:
        shape: Json = {
            "sha": change.sha, "filename": change.path, "status": change.status, "additions": change.additions,
            "deletions": change.deletions, "changes": change.additions + change.deletions,
            "blob_url": f"{self.repo_page(pull.repo)}/blob/{pull.head_sha}/{change.path}",
            "raw_url": f"{self.repo_page(pull.repo)}/raw/{pull.head_sha}/{change.path}",
            "contents_url": f"{self.repo_url(pull.repo)}/contents/{change.path}?ref={pull.head_sha}",
        }  # fmt: skip
        return shape if change.patch is None else shape | {"patch": change.patch}

    def ref(self, repo: Repo, name: str, sha: str) -> Json:
        url = self.repo_url(repo)
        return {
            "ref": name, "node_id": f"REF_{repo.id}_{name}", "url": f"{url}/git/{name}",
            "object": {"type": "commit", "sha": sha, "url": f"{url}/git/commits/{sha}"},
        }  # fmt: skip

    def branch(self, repo: Repo, name: str, sha: str) -> Json:
        url, protection = f"{self.repo_url(repo)}/branches/{name}", repo.protections.get(name)
        level = "non_admins" if protection else "off"
        return {
            "name": name,
            "commit": self.commit(repo, sha),
            "_links": {"self": url, "html": f"{self.repo_page(repo)}/tree/{name}"},
            "protected": protection is not None,
            "protection": {
                "enabled": protection is not None,
                "required_status_checks": {
                    "enforcement_level": level if protection and protection.checks else "off",
                    "contexts": list(protection.checks) if protection else [],
                    "checks": [{"context": check, "app_id": None} for check in protection.checks] if protection else [],
                },
            },
            "protection_url": f"{url}/protection",
        }

    def app(self, slug: str) -> Json:
        number, name = APPS.get(slug, (90000 + len(slug), slug))
        return {
            "id": number, "slug": slug, "node_id": f"A_{number}", "owner": self.user(GITHUB_ORGANIZATION), "name": name, "description": "",
            "external_url": f"{self.web}/apps/{slug}", "html_url": f"{self.web}/apps/{slug}", "created_at": "2018-07-30T09:30:17Z",
            "updated_at": "2019-12-10T19:04:12Z", "permissions": {"checks": "write", "metadata": "read"}, "events": ["push"],
        }  # fmt: skip

    def small_repo(self, repo: Repo) -> Json:
        return {"id": repo.id, "url": self.repo_url(repo), "name": repo.name}

    def small_pulls(self, repo: Repo, sha: str) -> list[Json]:
        return [
            {
                "url": self.pull_url(pull), "id": pull.id, "number": pull.number,
                "head": {"ref": pull.head_ref, "sha": pull.head_sha, "repo": self.small_repo(pull.head_repo or pull.repo)},
                "base": {"ref": pull.base_ref, "sha": rules.base_sha(pull), "repo": self.small_repo(pull.repo)},
            }
            for pull in rules.pulls_of(repo, sha) if pull.head_repo is repo
        ]  # fmt: skip

    def small_suite(self, suite: CheckSuite) -> Json:
        status, conclusion = rules.suite_state(suite)
        return {
            "id": suite.id, "node_id": suite.node_id, "head_branch": suite.branch, "head_sha": suite.head_sha, "status": status,
            "conclusion": conclusion, "url": f"{self.repo_url(suite.repo)}/check-suites/{suite.id}", "before": None,
            "after": suite.head_sha, "pull_requests": self.small_pulls(suite.repo, suite.head_sha), "app": self.app(suite.app),
            "created_at": suite.created_at, "updated_at": suite.updated_at,
        }  # fmt: skip

    def suite(self, suite: CheckSuite) -> Json:
        runs = [run for run in suite.runs if not run.replaced]
        return self.small_suite(suite) | {
            "latest_check_runs_count": len(runs),
            "check_runs_url": f"{self.repo_url(suite.repo)}/check-suites/{suite.id}/check-runs",
            "head_commit": self.simple_commit(suite.repo, suite.head_sha),
        }  # fmt: skip

    def run_page(self, run: GitHubCheckRun) -> str:
        page, work = self.repo_page(run.suite.repo), run.suite.workflow
        return f"{page}/actions/runs/{work.id}/job/{run.id}" if work else f"{page}/runs/{run.id}"

    def check_run(self, run: GitHubCheckRun) -> Json:
        repo = run.suite.repo
        url = f"{self.repo_url(repo)}/check-runs/{run.id}"
        return {
            "id": run.id, "node_id": run.node_id, "head_sha": run.suite.head_sha, "external_id": f"job-{run.id}", "url": url,
            "html_url": self.run_page(run), "details_url": run.details_url or self.run_page(run), "status": run.status,
            "conclusion": run.conclusion, "started_at": run.started_at, "completed_at": run.completed_at,
            "output": {
                "title": run.title, "summary": run.summary, "text": run.text, "annotations_count": len(run.annotations),
                "annotations_url": f"{url}/annotations",
            },
            "name": run.name, "check_suite": {"id": run.suite.id}, "app": self.app(run.suite.app),
            "pull_requests": self.small_pulls(repo, run.suite.head_sha),
        }  # fmt: skip

    def status(self, status: CommitStatus, *, simple: bool = False) -> Json:
        shape = {
            "url": f"{self.repo_url(status.repo)}/statuses/{status.sha}", "avatar_url": f"{self.web}/avatars/u/{status.creator.id}",
            "id": status.id, "node_id": status.node_id, "state": status.state, "description": status.description,
            "target_url": status.target_url, "context": status.context, "created_at": status.created_at,
            "updated_at": status.updated_at,
        }  # fmt: skip
        return shape if simple else shape | {"creator": self.user(status.creator)}

    def workflow_path(self, work: WorkflowRun) -> str:
        return f".github/workflows/{work.name.lower().replace(' ', '-')}.yml"

    def workflow_id(self, work: WorkflowRun) -> int:
        return 500_000 + sum(work.name.encode())

    def workflow(self, work: WorkflowRun) -> Json:
        repo, path = work.suite.repo, self.workflow_path(work)
        number = self.workflow_id(work)
        return {
            "id": number, "node_id": f"W_{number}", "name": work.name, "path": path, "state": "active", "created_at": repo.created_at,
            "updated_at": repo.created_at, "url": f"{self.repo_url(repo)}/actions/workflows/{number}",
            "html_url": f"{self.repo_page(repo)}/blob/{repo.default_branch}/{path}",
            "badge_url": f"{self.repo_page(repo)}/workflows/{work.name.replace(' ', '%20')}/badge.svg",
        }  # fmt: skip

    def workflow_run(self, work: WorkflowRun) -> Json:
        suite, repo = work.suite, work.suite.repo
        url = f"{self.repo_url(repo)}/actions/runs/{work.id}"
        status, conclusion = rules.suite_state(suite)
        commit = self.simple_commit(repo, suite.head_sha)
        return {
            "id": work.id, "name": work.name, "node_id": work.node_id, "head_branch": suite.branch or "", "head_sha": suite.head_sha,
            "path": self.workflow_path(work), "display_title": commit["message"].split("\n")[0], "run_number": work.run_number,
            "event": work.event, "status": status, "conclusion": conclusion, "workflow_id": self.workflow_id(work),
            "check_suite_id": suite.id, "check_suite_node_id": suite.node_id, "url": url,
            "html_url": f"{self.repo_page(repo)}/actions/runs/{work.id}", "pull_requests": self.small_pulls(repo, suite.head_sha),
            "created_at": work.created_at, "updated_at": work.updated_at, "actor": self.user(work.actor),
            "run_attempt": work.attempt, "referenced_workflows": [], "run_started_at": work.updated_at,
            "triggering_actor": self.user(work.actor), "jobs_url": f"{url}/jobs", "logs_url": f"{url}/logs",
            "check_suite_url": f"{self.repo_url(repo)}/check-suites/{suite.id}", "artifacts_url": f"{url}/artifacts",
            "cancel_url": f"{url}/cancel", "rerun_url": f"{url}/rerun",
            "previous_attempt_url": f"{url}/attempts/{work.attempt - 1}" if work.attempt > 1 else None,
            "workflow_url": f"{self.repo_url(repo)}/actions/workflows/{self.workflow_id(work)}", "head_commit": commit,
            "repository": self.lite_repo(repo), "head_repository": self.lite_repo(repo),
        }  # fmt: skip

    def job(self, run: GitHubCheckRun) -> Json:
        suite, repo = run.suite, run.suite.repo
        work = suite.workflow
        assert work is not None
        url, steps = f"{self.repo_url(repo)}/actions", []
        if run.status == "completed" and run.conclusion:
            steps = [{
                "name": f"Run {run.name}", "status": "completed", "conclusion": run.conclusion, "number": 1,
                "started_at": run.started_at, "completed_at": run.completed_at,
            }]  # fmt: skip
        return {
            "id": run.id, "run_id": work.id, "workflow_name": work.name, "head_branch": suite.branch,
            "run_url": f"{url}/runs/{work.id}", "run_attempt": run.attempt, "node_id": run.node_id, "head_sha": suite.head_sha,
            "url": f"{url}/jobs/{run.id}", "html_url": self.run_page(run), "status": run.status, "conclusion": run.conclusion,
            "created_at": run.created_at, "started_at": run.started_at, "completed_at": run.completed_at, "name": run.name,
            "steps": steps, "check_run_url": f"{self.repo_url(repo)}/check-runs/{run.id}", "labels": ["ubuntu-latest"], "runner_id": 1,
            "runner_name": "GitHub Actions 1", "runner_group_id": 2, "runner_group_name": "GitHub Actions",
        }  # fmt: skip

    def hook(self, hook: GitHubWebhook) -> Json:
        url = f"{self.repo_url(hook.repo)}/hooks/{hook.id}"
        return {
            "type": "Repository", "id": hook.id, "name": "web", "active": hook.active, "events": hook.events,
            "config": {
                "content_type": hook.content_type, "insecure_ssl": "0", "url": hook.url,
                **({"secret": "********"} if hook.secret else {}),
            },
            "updated_at": hook.updated_at, "created_at": hook.created_at, "url": url, "test_url": f"{url}/test",
            "ping_url": f"{url}/pings", "deliveries_url": f"{url}/deliveries",
            "last_response": {"code": None, "status": "unused", "message": None},
        }  # fmt: skip

    def delivery(self, delivery: GitHubDelivery) -> Json:
        return {
            "id": delivery.id, "guid": delivery.guid, "delivered_at": delivery.delivered_at, "redelivery": delivery.redelivery,
            "duration": 0.1, "status": "OK" if 200 <= delivery.status_code < 300 else "failed", "status_code": delivery.status_code,
            "event": delivery.event, "action": delivery.payload.get("action"), "installation_id": None,
            "repository_id": delivery.hook.repo.id, "throttled_at": None,
        }  # fmt: skip
