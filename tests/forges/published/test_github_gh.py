"""The real `gh` works with the test forge, so that not only our own client proves it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_orchestrator.testing.github import GitHubServer

ADDRESSES = [f"127.0.0.{last}" for last in range(2, 10)]
Run = Callable[..., str]


def _serve_tls(forge: GitHubServer) -> tuple[str, Path]:
    """Serve the forge at a free local address with port 443, the only one that gh uses; return the address and the certificate."""
    for address in ADDRESSES:
        try:
            return address, forge.serve_tls(address)
        except OSError as error:
            last_error = error
    pytest.skip(f"port 443 cannot be had at any of {ADDRESSES[0]} to {ADDRESSES[-1]}: {last_error}")


@pytest.fixture
def gh(forge: GitHubServer, tmp_path: Path) -> Run:
    if shutil.which("gh") is None:
        pytest.skip("gh is not installed: apt-get install gh")
    address, certificate = _serve_tls(forge)
    forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "write", "rev": "write"})
    git_config = {
        "credential.helper": "!gh auth git-credential",
        "user.name": "dev",
        "user.email": "dev@example.org",
        "push.autoSetupRemote": "true",
    }
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GH_HOST": address,
        "GH_ENTERPRISE_TOKEN": forge.token("dev"),
        "GH_PROMPT_DISABLED": "1",
        "GH_NO_UPDATE_NOTIFIER": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "SSL_CERT_FILE": str(certificate),
        "GIT_SSL_CAINFO": str(certificate),
        "GIT_CONFIG_COUNT": str(len(git_config)),
    }
    for index, (key, value) in enumerate(git_config.items()):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}

    def run(*argv: str, code: int = 0) -> str:
        folder = tmp_path / "app"
        process = subprocess.run(
            argv,
            cwd=folder if folder.exists() else tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert process.returncode == code, f"{argv}: {process.returncode}\n{process.stdout}{process.stderr}"
        return process.stdout

    return run


def test_gh_opens_and_merges_a_pull_request(forge: GitHubServer, gh: Run, tmp_path: Path) -> None:
    gh("gh", "auth", "status")
    gh("gh", "repo", "clone", "acme/app")
    gh("git", "switch", "--quiet", "-c", "fix")
    (tmp_path / "app" / "a.txt").write_text("1\n2\n3\n4\n")
    gh("git", "commit", "--quiet", "-am", "Add four")
    gh("git", "push", "--quiet")
    assert (
        gh("gh", "pr", "create", "--draft", "--title", "Four", "--body", "It was missing")
        .strip()
        .endswith("/acme/app/pull/1")
    )

    forge.check("acme/app", "fix", "tests", "failure", log="assert 3 == 4\nfailed")
    assert "tests\tfail" in gh("gh", "pr", "checks", code=1)
    run = json.loads(gh("gh", "run", "list", "--json", "databaseId"))[0]["databaseId"]
    assert "assert 3 == 4" in gh("gh", "run", "view", "--log-failed", str(run))
    gh("gh", "run", "rerun", "--failed", str(run))
    assert "tests\tpending" in gh("gh", "pr", "checks", code=1)
    forge.check("acme/app", "fix", "tests", "success")
    assert "tests\tpass" in gh("gh", "pr", "checks")

    gh("gh", "pr", "ready")
    gh("gh", "pr", "comment", "--body", "Have a look")
    gh("gh", "pr", "edit", "--add-reviewer", "rev")
    pull = forge.find_pull("acme/app", 1)
    assert [user.login for user in pull.requested] == ["rev"]
    forge.review(pull, "APPROVE", "Good", by="rev")
    view = json.loads(
        gh("gh", "pr", "view", "--json", "state,isDraft,mergeable,mergeStateStatus,comments,latestReviews,headRefOid")
    )
    assert (view["state"], view["isDraft"], view["mergeable"], view["mergeStateStatus"]) == (
        "OPEN",
        False,
        "MERGEABLE",
        "CLEAN",
    )
    assert view["comments"][0]["body"] == "Have a look"
    assert view["latestReviews"][0]["state"] == "APPROVED"
    assert "+4" in gh("gh", "pr", "diff")
    assert "Four" in gh("gh", "pr", "status")

    gh("gh", "pr", "merge", "--squash", "--delete-branch")
    assert pull.merged
    assert json.loads(gh("gh", "pr", "view", "1", "--json", "state"))["state"] == "MERGED"
    assert forge.read("acme/app", "main", "a.txt") == "1\n2\n3\n4\n"
    assert pull.repo.head("fix") is None


def test_gh_reads_and_changes_issues(forge: GitHubServer, gh: Run) -> None:
    forge.issue("acme/app", "It breaks", "Like this", labels=("bug",))
    gh("gh", "repo", "clone", "acme/app")
    assert "It breaks" in gh("gh", "issue", "list", "--label", "bug")
    assert "Like this" in gh("gh", "issue", "view", "1")
    gh("gh", "issue", "comment", "1", "--body", "On it")
    gh("gh", "issue", "close", "1")
    assert forge.world.repo("acme/app").issues[1].state == "closed"
    assert gh("gh", "issue", "create", "--title", "Another", "--body", "One").strip().endswith("/acme/app/issues/2")
    assert gh("gh", "api", "repos/acme/app/issues?state=all", "--jq", ".[].number").split() == ["2", "1"]
