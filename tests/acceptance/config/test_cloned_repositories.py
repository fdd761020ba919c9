"""Foreign repositories that are cloned, pulled or read: files that come by Git are never treated as the user's own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.config.test_trust import DEMO, commit, commit_foreign_repository, run_json

OWN_CONFIG = DEMO + "agents: {careful: {tool: demo, permissions: plan}}\n"
WITH_POST_CREATE = DEMO + "postCreate: [touch evil]\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloned")) as sandbox:
        sandbox.repository()
        sandbox.home.path.mkdir(mode=0o700)
        sandbox.home.config.write_text(OWN_CONFIG)
        sandbox.start()
        yield sandbox


def test_a_repository_cloned_below_the_home_is_not_the_users_own(box: Sandbox) -> None:
    """The dashboard adds a repository by its URL, without a current folder."""
    foreign_repo = commit_foreign_repository(box, "checks", WITH_POST_CREATE)
    added = box.request("POST", "/api/projects", {"url": foreign_repo.as_uri(), "init": True}, **{"X-AO-Cwd": ""})
    clone = Path(added["path"])
    assert added["trusted"] is False and clone == box.home.path / "repositories" / "checks"
    assert_refused(box.ao("new", "[[wait]]", "-p", added["id"], check=False), 1, "ao trust")
    (clone / "agent-orchestrator.yaml").unlink()
    own_file = box.folder / "mine.yaml"
    own_file.write_text(DEMO)
    (clone / "agent-orchestrator.yaml").symlink_to(own_file)
    assert_refused(box.ao("config", "set", "defaults.agent", "codex", cwd=clone, check=False), 1, "leads to")
    assert own_file.read_text() == DEMO


def test_files_that_a_pull_is_still_writing_are_not_the_users_own(box: Sandbox) -> None:
    """Git writes the files of a checkout before it records them in the index: with many or slow files, long before."""
    first = box.repo
    repo = box.repository("pulling", config="")
    box.repo = first
    (repo / "agent-orchestrator.yaml").unlink()
    commit(box, repo)
    box.git("checkout", "-q", "-b", "theirs", cwd=repo)
    (repo / "agent-orchestrator.yaml").write_text(WITH_POST_CREATE)
    (repo / ".gitattributes").write_text("z filter=slow\n")
    (repo / "z").touch()
    commit(box, repo)
    box.git("checkout", "-q", "main", cwd=repo)
    go_file = box.folder / "go"
    box.git("config", "filter.slow.smudge", f"while ! [ -e '{go_file}' ]; do sleep 0.05; done; cat", cwd=repo)
    with subprocess.Popen(["git", "merge", "-q", "theirs"], cwd=repo, env=box.env) as pull:
        box.wait_until(lambda: (repo / "agent-orchestrator.yaml").exists(), "the pull to have begun")
        status = box.ao("status", cwd=repo)
        assert pull.poll() is None
        go_file.touch()
    assert pull.returncode == 0 and "not in force" in status.stderr
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")


def test_an_untrusted_repository_starts_no_agents(box: Sandbox) -> None:
    """The author of a repository also writes its issues, and an agent runs what its files name."""
    rule = "reactions: {label-added: {action: spawn, auto: true}}\n"
    repo = commit_foreign_repository(box, "eager", DEMO + "orchestrator: {autoAssign: true}\n" + rule)
    box.ao("issue", "new", "Do it", "-m", "[[done: made]]", cwd=repo)
    assert "autoAssign is off" in box.ao("backlog", cwd=repo).stdout
    assert "spawn" not in box.ao("reactions", "list", "--json", cwd=repo).stdout
    output = box.ao("trust", "--yes", cwd=repo).stdout
    assert "orchestrator.autoAssign: True" in output and "reactions.label-added: spawn" in output
    box.wait_until(
        lambda: [session for session in box.sessions() if session["project"] == "eager"], "what is trusted to be taken"
    )


def test_an_untrusted_rule_merges_no_unapproved_change(box: Sandbox) -> None:
    """A change is merged after a person's approval or request; by any other trigger no person would have seen it."""
    repo = commit_foreign_repository(
        box, "landing", DEMO + "reactions: {land: {trigger: conflicts-seen, action: merge}}\n"
    )
    task = "[[write: a.txt|x]] [[commit: a]] [[done: a]]"
    assert "ao trust" in box.ao("new", task, "--name", "one", cwd=repo).stderr
    actions = box.wait_until(lambda: _reacted(box, "landing-one", "land"), "its rule to be followed")
    assert set(actions) == {"notify"} and box.session("landing-one")["pr"]["state"] == "open"
    assert "reactions.land: merge" in box.ao("trust", "--yes", cwd=repo).stdout
    rules = box.request("GET", "/api/reactions?project=landing")["rules"]
    assert [rule["action"] for rule in rules if rule["name"] == "land"] == ["merge"]


def _reacted(box: Sandbox, session: str, rule: str) -> list[str]:
    """Return the actions of a rule on a session."""
    events = box.request("GET", f"/api/sessions/{session}/events")["events"]
    return [event["data"]["action"] for event in events if event["type"] == "reacted" and event["data"]["rule"] == rule]


def test_workspaces_are_not_created_through_symlinks_of_the_repository(box: Sandbox) -> None:
    """Files in `~/.vim/pack/x/start`, or beside the user's own Python packages, would be executed."""
    elsewhere = box.folder / "elsewhere"
    elsewhere.mkdir()
    repo = commit_foreign_repository(box, "leading", DEMO + "projects: {leading: {path: ., worktreeDir: trees}}\n")
    box.ao("status", cwd=repo)
    for name in ("trees", ".worktrees"):  # which come by a later pull
        (repo / name).symlink_to(elsewhere)
    commit(box, repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, "worktreeDir", "leads out")
    (repo / "agent-orchestrator.yaml").write_text(DEMO)
    commit(box, repo)
    output = box.ao("new", "[[wait]]", "--name", "x", cwd=repo).stdout
    assert ".worktrees leads out" in output and list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("configured", [True, False])
def test_a_bare_repository_that_is_part_of_another_runs_nothing(box: Sandbox, configured: bool) -> None:
    """Git would run the programs that its configuration names to fetch and to write files."""
    marks = box.folder / "marks"
    repo = commit_foreign_repository(box, f"embeds-{configured}".lower(), DEMO)
    inner = repo / f"inner-{configured}".lower()
    (repo / ".gitattributes").write_text("* filter=x\n")
    commit(box, repo)
    box.git("clone", "-q", "--bare", str(repo), str(inner))
    for key, value in (
        ("filter.x.smudge", f"touch {marks}-filter; cat"),
        ("core.sshCommand", f"touch {marks}-ssh; false"),
        ("remote.origin.url", "ssh://127.0.0.1/x"),
    ):
        box.git("config", "--file", str(inner / "config"), key, value)
    (inner / "refs" / "heads" / "keep").touch()
    if configured:
        (repo / "agent-orchestrator.yaml").write_text(DEMO + f"projects: {{{inner.name}: {{path: {inner.name}}}}}\n")
        box.ao("status", cwd=repo)
    else:
        (repo / "agent-orchestrator.yaml").unlink()
    commit(box, repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=inner, check=False), 1, "part of the repository around it", "clone it")
    assert_refused(box.ao("add-project", str(inner), check=False), 1, "part of the repository around it")
    assert not list(box.folder.glob("marks-*"))


def test_untrusted_variables_that_programs_obey_are_not_set_for_an_agent(box: Sandbox) -> None:
    repo = commit_foreign_repository(box, "obeyed", DEMO + "env: {PS0: $(touch evil), PERLLIB: ., APP_MODE: test}\n")
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "env", "ao trust")
    (repo / "agent-orchestrator.yaml").write_text(DEMO + "env: {APP_MODE: test}\n")
    commit(box, repo)
    box.ao("new", "[[wait]]", "--name", "plain", cwd=repo)
    assert box.ao("sh", "obeyed-plain", "--", "sh", "-c", "echo $APP_MODE", cwd=repo).stdout == "test\n"


def test_a_repository_cannot_loosen_the_permissions_of_the_users_profiles(box: Sandbox) -> None:
    """The read-only permissions of a profile in the user's own file cannot be changed by a repository."""
    repo = commit_foreign_repository(box, "loosening", "agents: {careful: {permissions: auto-edit}}\n")
    assert_refused(
        box.ao("new", "[[wait]]", "--agent", "careful", cwd=repo, check=False), 1, "agents.careful", "ao trust"
    )
    box.ao("trust", "--yes", cwd=repo)
    assert box.ao("new", "[[wait]]", "--agent", "careful", cwd=repo).returncode == 0


def test_a_repository_cannot_choose_an_agent_with_more_permissions(tmp_path: Path) -> None:
    """Neither by name nor by an issue filter of a profile."""
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        box.home.path.mkdir(mode=0o700)
        box.home.config.write_text("defaults: {agent: careful, runtime: process}\n" + OWN_CONFIG.partition("\n")[2])
        box.start()
        repo = commit_foreign_repository(box, "barer", "defaults: {agent: demo}\n")
        assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "(agent)", "ao trust")
        box.ao("trust", "--yes", cwd=repo)
        assert box.ao("new", "[[wait]]", cwd=repo).returncode == 0
        repo = commit_foreign_repository(box, "taking", "agents: {theirs: {tool: demo, filters: {labels: [bug]}}}\n")
        box.ao("issue", "new", "Mend it", "--label", "bug", cwd=repo)
        assert "ao trust" in box.ao("new", "1", "--name", "one", cwd=repo).stderr
        assert box.session("taking-one")["profile"] == "careful"
        assert "agents.theirs.permissions: auto-edit" in box.ao("trust", "--yes", cwd=repo).stdout


def test_a_repository_cannot_use_other_trackers_or_repositories_of_the_user(box: Sandbox) -> None:
    """The user's token reads more than one team's issues, and a repository of the user may have the same name."""
    repo = commit_foreign_repository(box, "asking", DEMO + "tracker: {plugin: linear, team: PAY}\n")
    assert_refused(box.ao("new", "1", cwd=repo, check=False), 1, "(tracker)", "ao trust")
    repo = commit_foreign_repository(box, "pushing", DEMO + "repo: acme/secret\n")
    box.git("remote", "add", "origin", "https://evil.example/acme/secret.git", cwd=repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "(repo)", "ao trust")


def test_a_repository_cannot_exceed_the_users_own_budget(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        box.home.path.mkdir(mode=0o700)
        box.home.config.write_text("orchestrator: {budget: {perDay: 100 tokens}}\n")
        box.start()
        repo = commit_foreign_repository(box, "spending", DEMO + "reactions: {budget-exceeded: {action: notify}}\n")
        box.ao("new", "[[usage: input=500 output=1]] [[wait]]", "--name", "one", cwd=repo)
        actions = box.wait_until(lambda: _reacted(box, "spending-one", "budget-exceeded"), "its budget to be spent")
        assert actions == ["stop"]


def test_a_branch_named_like_a_variable_is_not_expanded(box: Sandbox) -> None:
    """The first configuration, which is the user's own, names the branch: the variable must not be expanded there."""
    repo, branch = box.folder / "called", "x${HOME}"
    box.git("init", "-q", "-b", branch, str(repo))
    commit(box, repo)
    box.ao("init", cwd=repo)
    created = run_json(box, "new", "[[wait]]", cwd=repo)
    assert created["base"] == branch and run_json(box, "add-project", str(repo), cwd=repo)["defaultBranch"] == branch


@pytest.mark.parametrize("attributes", ["", "*.yaml text eol=crlf", "*.yaml ident"])
def test_files_left_by_a_reverted_pull_are_not_the_users_own(box: Sandbox, attributes: str) -> None:
    """After `git reset HEAD~1` or an interrupted pull the files are left, and Git no longer tracks them."""
    name = f"taken-back-{len(attributes)}"
    repo = commit_foreign_repository(box, name, DEMO)
    (repo / "agent-orchestrator.yaml").unlink()
    commit(box, repo)
    (repo / ".gitattributes").write_text(f"{attributes}\n")
    (repo / "agent-orchestrator.yaml").write_text(f"{WITH_POST_CREATE}# $Id$\n")
    commit(box, repo)
    (repo / "agent-orchestrator.yaml").unlink()
    box.git("checkout", "-q", "--", "agent-orchestrator.yaml", cwd=repo)
    box.git("reset", "-q", "HEAD~1", cwd=repo)
    assert "?? agent-orchestrator.yaml" in box.git("status", "--porcelain", cwd=repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")
    box.git("rm", "-q", "-r", "--cached", "--ignore-unmatch", ".gitattributes", cwd=repo)
    (repo / ".gitattributes").unlink()
    (repo / "agent-orchestrator.yaml").write_text(f"{WITH_POST_CREATE}# the user's own\n")
    assert box.ao("new", "[[wait]]", "--name", "own", cwd=repo).returncode == 0


def test_ao_trust_in_a_pager_still_asks_on_the_terminal(box: Sandbox) -> None:
    """`ao trust | less`, answered with no."""
    repo = commit_foreign_repository(box, "paged", WITH_POST_CREATE)
    master, slave = pty.openpty()
    os.write(master, b"n\n")
    command = [sys.executable, "-m", "agent_orchestrator", "trust"]
    done = subprocess.run(command, env=box.env, cwd=repo, stdin=slave, capture_output=True, text=True)
    os.close(slave)
    os.close(master)
    assert done.returncode == 1 and "touch evil" in done.stdout and "nothing was trusted" in done.stderr
    assert not box.request("GET", f"/api/projects/trust?path={repo}")["trusted"]
