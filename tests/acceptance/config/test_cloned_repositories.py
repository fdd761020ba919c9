"""A repository of somebody else's, cloned, pulled or looked at: what comes by Git is never the user's own, and leads nowhere."""

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
from tests.acceptance.config.test_trust import DEMO, answer, commit, foreign

OWN = DEMO + "agents: {careful: {tool: demo, permissions: plan}}\n"
POWERS = DEMO + "postCreate: [touch evil]\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("cloned")) as sandbox:
        sandbox.repository()
        sandbox.home.path.mkdir(mode=0o700)
        sandbox.home.config.write_text(OWN)
        sandbox.start()
        yield sandbox


def test_what_is_cloned_into_our_own_folder_is_not_the_users_own(box: Sandbox) -> None:
    """The dashboard adds a repository by its URL, and stands in no folder."""
    theirs = foreign(box, "checks", POWERS)
    added = box.request("POST", "/api/projects", {"url": theirs.as_uri(), "init": True}, **{"X-AO-Cwd": ""})
    clone = Path(added["path"])
    assert added["trusted"] is False and clone == box.home.path / "repositories" / "checks"
    assert_refused(box.ao("new", "[[wait]]", "-p", added["id"], check=False), 1, "ao trust")
    (clone / "agent-orchestrator.yaml").unlink()
    mine = box.folder / "mine.yaml"
    mine.write_text(DEMO)
    (clone / "agent-orchestrator.yaml").symlink_to(mine)
    assert_refused(box.ao("config", "set", "defaults.agent", "codex", cwd=clone, check=False), 1, "leads to")
    assert mine.read_text() == DEMO


def test_what_a_pull_is_still_writing_is_not_the_users_own(box: Sandbox) -> None:
    """Git writes a checkout's files before it says that they are its own: with many of them, or slow ones, for a while."""
    first = box.repo
    repo = box.repository("pulling", config="")
    box.repo = first
    (repo / "agent-orchestrator.yaml").unlink()
    commit(box, repo)
    box.git("checkout", "-q", "-b", "theirs", cwd=repo)
    (repo / "agent-orchestrator.yaml").write_text(POWERS)
    (repo / ".gitattributes").write_text("z filter=slow\n")
    (repo / "z").touch()
    commit(box, repo)
    box.git("checkout", "-q", "main", cwd=repo)
    go = box.folder / "go"
    box.git("config", "filter.slow.smudge", f"while ! [ -e '{go}' ]; do sleep 0.05; done; cat", cwd=repo)
    with subprocess.Popen(["git", "merge", "-q", "theirs"], cwd=repo, env=box.env) as pull:
        box.until(lambda: (repo / "agent-orchestrator.yaml").exists(), "the pull to have begun")
        looked = box.ao("status", cwd=repo)
        assert pull.poll() is None
        go.touch()
    assert pull.returncode == 0 and "not in force" in looked.stderr
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")


def test_no_agent_is_started_by_a_repository_that_was_only_looked_at(box: Sandbox) -> None:
    """Whoever wrote it writes its issues too, and an agent runs what its files name."""
    rule = "reactions: {label-added: {action: spawn, auto: true}}\n"
    repo = foreign(box, "eager", DEMO + "orchestrator: {autoAssign: true}\n" + rule)
    box.ao("issue", "new", "Do it", "-m", "[[done: made]]", cwd=repo)
    assert "autoAssign is off" in box.ao("backlog", cwd=repo).stdout
    assert "spawn" not in box.ao("reactions", "list", "--json", cwd=repo).stdout
    shown = box.ao("trust", "--yes", cwd=repo).stdout
    assert "orchestrator.autoAssign: True" in shown and "reactions.label-added: spawn" in shown
    box.until(lambda: [one for one in box.sessions() if one["project"] == "eager"], "what is trusted to be taken")


def test_no_rule_of_it_lands_what_nobody_approved(box: Sandbox) -> None:
    """A change lands by a person's approval or by his word; by any other trigger he would not have seen it."""
    repo = foreign(box, "landing", DEMO + "reactions: {land: {trigger: conflicts-seen, action: merge}}\n")
    task = "[[write: a.txt|x]] [[commit: a]] [[done: a]]"
    assert "ao trust" in box.ao("new", task, "--name", "one", cwd=repo).stderr
    told = box.until(lambda: _reacted(box, "landing-one", "land"), "its rule to be followed")
    assert set(told) == {"notify"} and box.session("landing-one")["pr"]["state"] == "open"
    assert "reactions.land: merge" in box.ao("trust", "--yes", cwd=repo).stdout
    rules = box.request("GET", "/api/reactions?project=landing")["rules"]
    assert [one["action"] for one in rules if one["name"] == "land"] == ["merge"]


def _reacted(box: Sandbox, session: str, rule: str) -> list[str]:
    """What a rule has done."""
    events = box.request("GET", f"/api/sessions/{session}/events")["events"]
    return [one["data"]["action"] for one in events if one["type"] == "reacted" and one["data"]["rule"] == rule]


def test_no_workspace_is_put_where_a_symlink_of_it_leads(box: Sandbox) -> None:
    """What lies in `~/.vim/pack/x/start`, or beside the user's own Python packages, is run."""
    elsewhere = box.folder / "elsewhere"
    elsewhere.mkdir()
    repo = foreign(box, "leading", DEMO + "projects: {leading: {path: ., worktreeDir: trees}}\n")
    box.ao("status", cwd=repo)
    for name in ("trees", ".worktrees"):  # which come by a later pull
        (repo / name).symlink_to(elsewhere)
    commit(box, repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 2, "worktreeDir", "leads out")
    (repo / "agent-orchestrator.yaml").write_text(DEMO)
    commit(box, repo)
    made = box.ao("new", "[[wait]]", "--name", "x", cwd=repo).stdout
    assert ".worktrees leads out" in made and list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("configured", [True, False])
def test_a_bare_repository_that_is_part_of_another_runs_nothing(box: Sandbox, configured: bool) -> None:
    """Git would run what its configuration names to fetch, and to write files."""
    marks = box.folder / "marks"
    repo = foreign(box, f"embeds-{configured}".lower(), DEMO)
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


def test_variables_that_a_shell_or_a_program_may_obey_are_not_set_for_an_agent(box: Sandbox) -> None:
    repo = foreign(box, "obeyed", DEMO + "env: {PS0: $(touch evil), PERLLIB: ., APP_MODE: test}\n")
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "env", "ao trust")
    (repo / "agent-orchestrator.yaml").write_text(DEMO + "env: {APP_MODE: test}\n")
    commit(box, repo)
    box.ao("new", "[[wait]]", "--name", "plain", cwd=repo)
    assert box.ao("sh", "obeyed-plain", "--", "sh", "-c", "echo $APP_MODE", cwd=repo).stdout == "test\n"


def test_it_takes_no_wall_away_from_an_agent_of_the_users_own(box: Sandbox) -> None:
    """His word that an agent only looks, given in his own file, is not changed by who wrote the repository."""
    repo = foreign(box, "loosening", "agents: {careful: {permissions: auto-edit}}\n")
    assert_refused(
        box.ao("new", "[[wait]]", "--agent", "careful", cwd=repo, check=False), 1, "agents.careful", "ao trust"
    )
    box.ao("trust", "--yes", cwd=repo)
    assert box.ao("new", "[[wait]]", "--agent", "careful", cwd=repo).returncode == 0


def test_it_names_no_agent_with_fewer_walls_than_the_users_usual_one(tmp_path: Path) -> None:
    """Neither by its name, nor for an issue that a profile of it takes."""
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        box.home.path.mkdir(mode=0o700)
        box.home.config.write_text("defaults: {agent: careful, runtime: process}\n" + OWN.partition("\n")[2])
        box.start()
        repo = foreign(box, "barer", "defaults: {agent: demo}\n")
        assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "(agent)", "ao trust")
        box.ao("trust", "--yes", cwd=repo)
        assert box.ao("new", "[[wait]]", cwd=repo).returncode == 0
        repo = foreign(box, "taking", "agents: {theirs: {tool: demo, filters: {labels: [bug]}}}\n")
        box.ao("issue", "new", "Mend it", "--label", "bug", cwd=repo)
        assert "ao trust" in box.ao("new", "1", "--name", "one", cwd=repo).stderr
        assert box.session("taking-one")["profile"] == "careful"
        assert "agents.theirs.permissions: auto-edit" in box.ao("trust", "--yes", cwd=repo).stdout


def test_it_opens_no_issues_and_no_repository_of_the_users_elsewhere(box: Sandbox) -> None:
    """His token reads more than one team's issues, and a repository of his may be called as this one is at its own host."""
    repo = foreign(box, "asking", DEMO + "tracker: {plugin: linear, team: PAY}\n")
    assert_refused(box.ao("new", "1", cwd=repo, check=False), 1, "(tracker)", "ao trust")
    repo = foreign(box, "pushing", DEMO + "repo: acme/secret\n")
    box.git("remote", "add", "origin", "https://evil.example/acme/secret.git", cwd=repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "(repo)", "ao trust")


def test_it_spends_no_more_than_a_budget_of_the_users_own(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        box.home.path.mkdir(mode=0o700)
        box.home.config.write_text("orchestrator: {budget: {perDay: 100 tokens}}\n")
        box.start()
        repo = foreign(box, "spending", DEMO + "reactions: {budget-exceeded: {action: notify}}\n")
        box.ao("new", "[[usage: input=500 output=1]] [[wait]]", "--name", "one", cwd=repo)
        told = box.until(lambda: _reacted(box, "spending-one", "budget-exceeded"), "its budget to be spent")
        assert told == ["stop"]


def test_a_branch_that_is_called_like_a_variable_is_only_called_so(box: Sandbox) -> None:
    """The first configuration names it, which is the user's own: his token would be asked for at its server, as the name of a branch."""
    repo, branch = box.folder / "called", "x${HOME}"
    box.git("init", "-q", "-b", branch, str(repo))
    commit(box, repo)
    box.ao("init", cwd=repo)
    made = answer(box, "new", "[[wait]]", cwd=repo)
    assert made["base"] == branch and answer(box, "add-project", str(repo), cwd=repo)["defaultBranch"] == branch


@pytest.mark.parametrize("attributes", ["", "*.yaml text eol=crlf", "*.yaml ident"])
def test_what_is_left_of_a_pull_that_was_taken_back_is_not_the_users_own(box: Sandbox, attributes: str) -> None:
    """After `git reset HEAD~1`, or a pull that was interrupted, its files are there, and Git tracks them no more."""
    name = f"taken-back-{len(attributes)}"
    repo = foreign(box, name, DEMO)
    (repo / "agent-orchestrator.yaml").unlink()
    commit(box, repo)
    (repo / ".gitattributes").write_text(f"{attributes}\n")
    (repo / "agent-orchestrator.yaml").write_text(f"{POWERS}# $Id$\n")
    commit(box, repo)
    (repo / "agent-orchestrator.yaml").unlink()
    box.git("checkout", "-q", "--", "agent-orchestrator.yaml", cwd=repo)
    box.git("reset", "-q", "HEAD~1", cwd=repo)
    assert "?? agent-orchestrator.yaml" in box.git("status", "--porcelain", cwd=repo)
    assert_refused(box.ao("new", "[[wait]]", cwd=repo, check=False), 1, "ao trust")
    box.git("rm", "-q", "-r", "--cached", "--ignore-unmatch", ".gitattributes", cwd=repo)
    (repo / ".gitattributes").unlink()
    (repo / "agent-orchestrator.yaml").write_text(f"{POWERS}# the user's own\n")
    assert box.ao("new", "[[wait]]", "--name", "own", cwd=repo).returncode == 0


def test_whoever_reads_in_a_pager_what_would_be_trusted_is_asked_all_the_same(box: Sandbox) -> None:
    """`ao trust | less`, and the person says no."""
    repo = foreign(box, "paged", POWERS)
    master, slave = pty.openpty()
    os.write(master, b"n\n")
    command = [sys.executable, "-m", "agent_orchestrator", "trust"]
    done = subprocess.run(command, env=box.env, cwd=repo, stdin=slave, capture_output=True, text=True)
    os.close(slave)
    os.close(master)
    assert done.returncode == 1 and "touch evil" in done.stdout and "nothing was trusted" in done.stderr
    assert not box.request("GET", f"/api/projects/trust?path={repo}")["trusted"]
