"""The GitHub test server behaves like GitHub: pushes, merges, rate limits and faults."""

from __future__ import annotations

import http.client
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.github import GitHubServer, Repo
from tests.forges.client import ForgeClient

APP = "/repos/acme/app"


@pytest.fixture
def forge() -> Iterator[GitHubServer]:
    with GitHubServer() as server:
        server.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "write", "rev": "write"})
        yield server


@pytest.fixture
def dev(forge: GitHubServer) -> ForgeClient:
    return ForgeClient(forge, forge.token("dev"))


def git(folder: Path, *argv: str, ok: bool = True) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=dev", "-c", "user.email=dev@example.org", "-c", "credential.helper=", *argv],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is ok, done.stderr
    return done.stdout + done.stderr


def clone(forge: GitHubServer, folder: Path, token: str) -> Path:
    git(folder, "clone", "--quiet", forge.git_url("acme/app").replace("://", f"://dev:{token}@"), "app")
    return folder / "app"


def test_a_push_over_http_moves_the_pull_request(forge: GitHubServer, dev: ForgeClient, tmp_path: Path) -> None:
    tree = clone(forge, tmp_path, dev.token)
    git(tree, "switch", "--quiet", "-c", "fix")
    (tree / "a.txt").write_text("1\n2\n3\n4\n")
    git(tree, "commit", "--quiet", "-am", "four")
    git(tree, "push", "--quiet", "origin", "fix")
    pull = dev("POST", f"{APP}/pulls", {"title": "Four", "head": "fix", "base": "main"})
    assert pull["head"]["sha"] == git(tree, "rev-parse", "HEAD").strip()
    thread = forge.thread(forge.find_pull("acme/app", 1), "a.txt", 4, "why", by="rev")
    (tree / "a.txt").write_text("1\n2\n3\nfour\n")
    git(tree, "commit", "--quiet", "--amend", "-am", "four in words")
    git(tree, "push", "--quiet", "--force", "origin", "fix")
    after = dev("GET", f"{APP}/pulls/1")
    assert after["head"]["sha"] == git(tree, "rev-parse", "HEAD").strip()
    assert thread.outdated
    assert [payload["action"] for event, payload in forge.hooks.keep_payloads if event == "pull_request"] == [
        "opened",
        "synchronize",
    ]
    assert (
        next(payload for event, payload in forge.hooks.keep_payloads if event == "push" and payload["forced"])["ref"]
        == "refs/heads/fix"
    )


def test_git_access_needs_the_right_permissions(forge: GitHubServer, tmp_path: Path) -> None:
    tree = clone(forge, tmp_path, forge.token("stranger"))
    git(tree, "commit", "--quiet", "--allow-empty", "-m", "mine")
    assert "403" in git(tree, "push", "origin", "HEAD:main", ok=False)
    forge.repository("acme/secret", private=True)
    git(tmp_path, "clone", "--quiet", forge.git_url("acme/secret").replace("://", f"://x:{forge.token('acme')}@"), "s")
    assert "not found" in git(
        tmp_path, "clone", forge.git_url("acme/secret").replace("://", f"://x:{forge.token('dev')}@"), "t", ok=False
    )


@pytest.mark.parametrize("method", ["merge", "squash", "rebase"])
def test_merges_are_real_commits(forge: GitHubServer, dev: ForgeClient, method: str) -> None:
    forge.push("acme/app", "fix", {"b.txt": "b\n"}, message="one", by="dev")
    head = forge.push("acme/app", "fix", {"c.txt": "c\n"}, message="two", by="dev")
    forge.push("acme/app", "main", {"d.txt": "d\n"}, message="other")
    forge.pull("acme/app", "fix", "Both", by="dev")
    assert dev.ask("PUT", f"{APP}/pulls/1/merge", {"sha": "0" * 40, "merge_method": method})[0] == 409
    done = dev("PUT", f"{APP}/pulls/1/merge", {"sha": head, "merge_method": method})
    subjects = [commit.message.split("\n")[0] for commit in forge.log("acme/app")]
    assert forge.log("acme/app")[0].sha == done["sha"] == dev("GET", f"{APP}/pulls/1")["merge_commit_sha"]
    assert (
        subjects[0] == {"merge": "Merge pull request #1 from acme/fix", "squash": "Both (#1)", "rebase": "two"}[method]
    )
    assert len(subjects) == (4 if method == "rebase" else 3)
    assert forge.read("acme/app", "main", "b.txt") + forge.read("acme/app", "main", "d.txt") == "b\nd\n"


def test_conflicts_are_reported_until_they_are_resolved(forge: GitHubServer, dev: ForgeClient) -> None:
    forge.world.unknown_first = 1
    forge.push("acme/app", "fix", {"a.txt": "mine\n"}, by="dev")
    forge.pull("acme/app", "fix", by="dev")
    assert dev("GET", f"{APP}/pulls/1")["mergeable"] is None
    assert dev("GET", f"{APP}/pulls/1")["mergeable_state"] == "clean"
    forge.push("acme/app", "main", {"a.txt": "theirs\n"})
    assert dev("GET", f"{APP}/pulls/1")["mergeable_state"] == "unknown"
    pull = dev("GET", f"{APP}/pulls/1")
    assert (pull["mergeable"], pull["mergeable_state"]) == (False, "dirty")
    assert dev.ask("PUT", f"{APP}/pulls/1/merge", {})[0] == 405
    forge.push("acme/app", "fix", {"a.txt": "theirs and mine\n"}, base="main", force=True, by="dev")
    dev("GET", f"{APP}/pulls/1")
    assert dev("GET", f"{APP}/pulls/1")["mergeable"] is True


def test_a_304_does_not_count_towards_the_rate_limit(forge: GitHubServer, dev: ForgeClient) -> None:
    dev("GET", f"{APP}/pulls")
    tag, remaining = dev.headers["etag"], dev.headers["x-ratelimit-remaining"]
    assert dev.ask("GET", f"{APP}/pulls", **{"If-None-Match": tag})[0] == 304
    assert dev.headers["x-ratelimit-remaining"] == remaining
    forge.push("acme/app", "fix", {"b.txt": "b\n"})
    forge.pull("acme/app", "fix")
    assert dev.ask("GET", f"{APP}/pulls", **{"If-None-Match": tag})[0] == 200
    assert forge.ledger.counts() == {
        "rest": 3, "rest 200": 2, "rest 304": 1, "rest points": 2, "conditional": 2,
    }  # fmt: skip


def test_lists_come_in_pages(forge: GitHubServer, dev: ForgeClient) -> None:
    for number in range(230):
        forge.check("acme/app", "main", f"check {number}", "success", app="checks-app")
    path, names = f"{APP}/commits/main/check-runs?per_page=100", []
    while path:
        page = dev("GET", path)
        assert page["total_count"] == 230
        names += [run["name"] for run in page["check_runs"]]
        next_link = re.search(r'<([^>]+)>; rel="next"', dev.headers.get("link", ""))
        path = next_link[1].removeprefix(forge.url) if next_link else ""
    assert len(set(names)) == 230
    assert forge.ledger.counts()["rest"] == 3


def test_faults_are_injected_as_configured(forge: GitHubServer, dev: ForgeClient) -> None:
    forge.fail(502, next=2)
    assert [dev.ask("GET", APP)[0] for _ in range(3)] == [502, 502, 200]
    forge.fail("secondary", retry_after=7)
    status, body = dev.ask("GET", APP)
    assert (status, dev.headers["retry-after"], "secondary rate limit" in body["message"]) == (403, "7", True)
    for fault in ("cut", "drop"):
        forge.fail(fault)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            dev.ask("GET", APP)
    forge.fail(401, path="/pulls$")
    assert (dev.ask("GET", APP)[0], dev.ask("GET", f"{APP}/pulls")[0]) == (200, 401)
    forge.set_rate(dev.token, remaining=1, reset=forge.world.clock() + 60)
    assert [dev.ask("GET", APP)[0] for _ in range(2)] == [200, 403]
    assert dev.headers["x-ratelimit-remaining"] == "0"
    assert dev.ask("GET", "/rate_limit")[0] == 200


def test_invalid_expired_and_limited_tokens_are_refused(forge: GitHubServer) -> None:
    assert ForgeClient(forge, "ghp_wrong").ask("GET", "/user") == (401, {
        "message": "Bad credentials", "documentation_url": "https://docs.github.com/rest", "status": "401",
    })  # fmt: skip
    assert ForgeClient(forge, forge.token("dev", expired=True)).ask("GET", "/user")[0] == 401
    narrow = ForgeClient(forge, forge.token("dev", scopes=("read:org",)))
    assert narrow.ask("POST", f"{APP}/issues", {"title": "No"})[0] == 404
    assert narrow.headers["x-oauth-scopes"] == "read:org"


def test_a_renamed_repository_redirects(forge: GitHubServer, dev: ForgeClient, tmp_path: Path) -> None:
    tree = clone(forge, tmp_path, dev.token)
    forge.push("acme/app", "fix", {"b.txt": "b\n"})
    pull = forge.pull("acme/app", "fix")
    forge.rename("acme/app", "engine")
    assert dev.ask("GET", f"{APP}/pulls?state=open")[0] == 301
    assert dev("GET", dev.headers["location"].removeprefix(forge.url))[0]["node_id"] == pull.node_id
    assert dev.ask("POST", f"{APP}/issues/1/comments", {"body": "x"})[0] == 307
    git(tree, "fetch", "--quiet", "origin")


def test_a_large_job_log_can_be_read_and_the_job_rerun(forge: GitHubServer, dev: ForgeClient) -> None:
    commits: list[str] = []

    def ci(repo: Repo, sha: str) -> None:
        commits.append(sha)
        has_run_before = len(commits) > 1
        forge.check(
            repo,
            sha,
            "tests",
            "success" if has_run_before else "failure",
            log=lambda: (b"x" * 1023 + b"\n" for _ in range(20_000)),
        )

    forge.ci("acme/app", ci)
    sha = forge.push("acme/app", "fix", {"b.txt": "b\n"})
    assert commits == [sha]
    run = dev("GET", f"{APP}/actions/runs?head_sha={sha}")["workflow_runs"][0]
    job = dev("GET", f"{APP}/actions/runs/{run['id']}/jobs")["jobs"][0]
    assert dev.ask("GET", f"{APP}/actions/jobs/{job['id']}/logs")[0] == 302
    status, log = ForgeClient(forge, "").ask("GET", dev.headers["location"].removeprefix(forge.url))
    assert (status, len(log)) == (200, 20_000 * 1024)
    dev("POST", f"{APP}/actions/runs/{run['id']}/rerun-failed-jobs")
    again = dev("GET", f"{APP}/actions/runs/{run['id']}")
    assert (again["run_attempt"], again["conclusion"], commits) == (2, "success", [sha, sha])
    assert dev("GET", f"{APP}/commits/fix/check-runs")["total_count"] == 1
    assert dev("GET", f"{APP}/commits/fix/check-runs?filter=all")["total_count"] == 2


def test_a_fork_of_a_first_time_contributor_needs_approval(forge: GitHubServer, dev: ForgeClient) -> None:
    fork = forge.fork("acme/app", "stranger")
    sha = forge.push(fork, "idea", {"i.txt": "i\n"}, by="stranger")
    stranger = ForgeClient(forge, forge.token("stranger"))
    pull = stranger("POST", f"{APP}/pulls", {"title": "Idea", "head": "stranger:idea", "base": "main"})
    assert (pull["head"]["label"], pull["author_association"]) == ("stranger:idea", "FIRST_TIME_CONTRIBUTOR")
    forge.comment(forge.find_pull("acme/app", 1), "hi", by="passer-by")
    assert dev("GET", f"{APP}/issues/1/comments")[0]["author_association"] == "NONE"
    run = forge.await_approval("acme/app", sha, by="stranger")
    assert dev("GET", f"{APP}/actions/runs/{run.id}")["conclusion"] == "action_required"
    assert stranger.ask("POST", f"{APP}/actions/runs/{run.id}/approve")[0] == 403
    dev("POST", f"{APP}/actions/runs/{run.id}/approve")
    assert dev("GET", f"{APP}/actions/runs/{run.id}")["status"] == "queued"
    assert stranger.ask("PUT", f"{APP}/pulls/1/merge", {})[0] == 403
    forge.push(fork, "idea", {"i.txt": "j\n"}, by="stranger")
    assert dev("GET", f"{APP}/pulls/1")["head"]["sha"] == fork.head("idea")


def test_a_deleted_branch_closes_its_pull_request(forge: GitHubServer, dev: ForgeClient) -> None:
    forge.push("acme/app", "fix", {"b.txt": "b\n"})
    forge.pull("acme/app", "fix")
    dev("DELETE", f"{APP}/git/refs/heads/fix")
    assert dev("GET", f"{APP}/pulls/1")["state"] == "closed"
    assert dev.ask("PATCH", f"{APP}/pulls/1", {"state": "open"})[0] == 422


def test_the_server_can_be_taken_down_and_up(forge: GitHubServer, dev: ForgeClient) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", forge.port, timeout=60)
    connection.request("GET", "/meta")
    connection.getresponse().read()
    forge.down()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.request("GET", "/meta")
        connection.getresponse()
    connection.close()
    with pytest.raises(ConnectionError):
        dev.ask("GET", APP)
    forge.up()
    assert dev("GET", APP)["full_name"] == "acme/app"


def test_a_protected_branch_refuses_pushes(forge: GitHubServer, dev: ForgeClient, tmp_path: Path) -> None:
    tree = clone(forge, tmp_path, dev.token)
    forge.protect("acme/app", checks=("tests",))
    git(tree, "commit", "--quiet", "--allow-empty", "-m", "mine")
    assert "GH006" in git(tree, "push", "origin", "HEAD:main", ok=False)
    git(tree, "push", "--quiet", "origin", "HEAD:fix")
    owner = forge.git_url("acme/app").replace("://", f"://acme:{forge.token('acme')}@")
    git(tree, "push", "--quiet", owner, "HEAD:main")


def test_a_deleted_fork_leaves_its_pull_request(forge: GitHubServer, dev: ForgeClient) -> None:
    fork = forge.fork("acme/app", "stranger")
    forge.push(fork, "idea", {"i.txt": "i\n"}, by="stranger")
    forge.pull("acme/app", "stranger:idea", by="stranger")
    forge.delete(fork)
    assert dev("GET", f"{APP}/pulls/1")["head"]["repo"] is None
    assert dev.ask("GET", "/repos/stranger/app")[0] == 404


def test_tokens_of_one_person_share_a_rate_limit(forge: GitHubServer, dev: ForgeClient) -> None:
    other = ForgeClient(forge, forge.token("dev"))
    dev("GET", APP)
    other("GET", APP)
    assert other.headers["x-ratelimit-remaining"] == "4998"


def test_the_example_of_the_documentation_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "test-github.md").read_text()
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block
    exec(compile(block[1], "docs/test-github.md", "exec"), {})


def test_exceptions_inside_the_server_are_raised() -> None:
    def ci(repo: Repo, sha: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), GitHubServer() as forge:
        forge.repository("acme/app")
        forge.ci("acme/app", ci)
        client = ForgeClient(forge, forge.token("acme"))
        assert (
            client.ask("POST", f"{APP}/git/refs", {"ref": "refs/heads/x", "sha": forge.log("acme/app")[0].sha})[0]
            == 500
        )
