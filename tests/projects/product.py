"""The stages that run our product on one project: `ao init`, a harmless change, the bug, and both without the set-up.

Each returns a result; its `wrong` lists the problems.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ruamel.yaml import YAML

from tests.projects.corpus import CorpusProject
from tests.projects.counts import count_passed
from tests.projects.machine import login_environment, make_home
from tests.projects.registry import fetch_repository
from tests.projects.shell import run_command
from tests.projects.state import Result
from tests.projects.trial import CONFIG, TIMEOUT, Json, Trial, bug_script, harmless_script

FALSE_GREEN = "false green"
FALSE_RED = "false red"


def init(project: CorpusProject, trial: Trial) -> Result:
    """Run `ao init --yes` as a new user; check that the set-up is found and proven and the test command is correct."""
    process = trial.box.ao("init", "--yes", "--json", check=False)
    answer = json.loads(process.stdout) if process.stdout.strip().startswith("{") else {}
    proof = answer.get("proof") or {}
    checks = proof.get("checks", [])
    has_config = (trial.box.repo / CONFIG).is_file()
    config = trial.configuration() if has_config else ""
    proven = (
        process.returncode == 0 and bool(proof.get("proven")) and all(check["state"] == "success" for check in checks)
    )
    expected_counts = (project.passed, *project.accepted)
    counts = [check["passed"] for check in checks if check["name"] != "lint"]
    is_right = any(count in expected_counts for count in counts) or (
        bool(checks) and _count_passed(project, proof) in expected_counts
    )
    changed_files = [
        check for check in trial.box.git("status", "--porcelain").splitlines() if not check.endswith(CONFIG)
    ]
    return {
        "ok": proven and is_right and not changed_files,
        "proven": proven,
        "right": is_right,
        "setUp": proof.get("setUp", {}).get("commands", []),
        "test": {check["name"]: check["command"] for check in checks},
        "counts": counts,
        "left": changed_files,
        "why": proof.get("reason") or "" if proof else (process.stderr or process.stdout).strip()[-400:],
        "config": config,
    }


def _count_passed(project: CorpusProject, proof: Json) -> int:
    """Return how many tests pass with the configured commands, counted without the product."""
    commands = [result["command"] for result in proof.get("checks", []) if result["name"] != "lint"]
    with tempfile.TemporaryDirectory(prefix=f"ao-{project.name}-", ignore_cleanup_errors=True) as folder:
        env = login_environment(project, Path(folder, "home"))
        make_home(Path(folder, "home"), env)
        tree = Path(folder, project.name)
        subprocess.run(["git", "clone", "-q", str(fetch_repository(project)), str(tree)], check=True)
        for command in proof["setUp"]["commands"]:
            if run_command(command, tree, env).code:
                return 0
        results = [run_command(command, tree, env) for command in commands]
    return (
        0
        if any(result.code for result in results)
        else sum(count_passed(project.runner, result.output) for result in results)
    )


def intact(project: CorpusProject, trial: Trial) -> Result:
    """Check that a harmless change passes its checks and is merged."""
    session = trial.session("harmless", harmless_script("harmless"))
    before = trial.base_commit()
    code, output = trial.merge(session["id"])
    merged = trial.base_commit() != before
    problems = [] if _green(session) else [f"{FALSE_RED}: the check of a harmless change is {_states(session)}"]
    problems += [] if merged and code == 0 else [f"{FALSE_RED}: a harmless change is not merged: {output[-300:]}"]
    return _result(problems, check=_states(session), merged=merged)


def broken(project: CorpusProject, trial: Trial) -> Result:
    """Check that the bug fails its checks and is never merged, and that `ao fix` finds it and does not merge it either."""
    before = trial.base_commit()
    trial.set_auto_merge()
    session = trial.session("broken", bug_script(project))
    problems = _merge_problems(trial, session, before)
    trial.branch("with-bug", {}, [project.bug])
    process = trial.box.ao("fix", "--dry-run", "--base", "with-bug", "--json", check=False)
    fix_run = json.loads(process.stdout) if process.stdout.strip().startswith("{") else {}
    failure_count = fix_run.get("before")
    set_up_failed = (
        process.returncode and fix_run.get("state") == "failed"
    )  # the bug breaks a set-up that runs the tests
    if not failure_count and not set_up_failed:
        problems.append(
            f"{FALSE_GREEN}: ao fix --dry-run finds {failure_count} failures: {(process.stderr or process.stdout).strip()[-300:]}"
        )
    wrong_fix, outcome = _try_fix(project, trial)
    problems += wrong_fix
    problems += [f"{FALSE_GREEN}: the bug was merged by auto-merge"] if trial.base_commit() != before else []
    return _result(problems, check=_states(session), fix=failure_count, outcome=outcome)


def _merge_problems(trial: Trial, session: Json, before: str) -> list[str]:
    """Return the problems of a session with the bug: passed checks, or a merge by `ao merge` or, approved, by auto-merge."""
    problems = [f"{FALSE_GREEN}: the check of the bug is {_states(session)}"] if _green(session) else []
    trial.approve(session["id"])
    code, _ = trial.merge(session["id"])
    if code == 0 or trial.base_commit() != before:
        problems.append(f"{FALSE_GREEN}: the bug was merged by ao merge or auto-merge")
    return problems


def _try_fix(project: CorpusProject, trial: Trial) -> tuple[list[str], str]:
    """Run `ao fix` with an agent whose fix contains the bug; return the problems and the outcomes of each cause."""
    trial.branch("to-fix", {"ao-fails.txt": "This file is the failure.\n"})
    before = trial.box.git("rev-parse", "to-fix")
    script = f"[[sh: git rm -q ao-fails.txt]] {bug_script(project)} [[commit: Remove it]] [[done: removed]]"
    yaml = YAML()
    data = yaml.load(trial.configuration())
    data.setdefault("agents", {})["breaker"] = {"tool": "demo", "script": script}
    with (trial.box.repo / CONFIG).open("w") as file:
        yaml.dump(data, file)
    trial.box.ao("trust", "--yes")
    argv = ["--base", "to-fix", "--command", "test ! -e ao-fails.txt", "--agent", "breaker", "--max-rounds", "1"]
    process = trial.box.ao("fix", *argv, "--no-wait", "--json", check=False)
    if process.returncode:
        return [f"ao fix did not begin: {(process.stderr or process.stdout).strip()[-300:]}"], ""
    fix_id = json.loads(process.stdout)["id"]

    def ended_fix() -> Json:
        fix: Json = trial.box.request("GET", f"/api/fixes/{fix_id}")
        return fix if fix["ended"] else {}

    rounds = trial.box.wait_until(ended_fix, f"the end of {fix_id}", TIMEOUT)["rounds"]
    groups = [group for fix_round in rounds for group in fix_round["groups"]]
    merged = trial.box.git("rev-parse", "to-fix") != before
    problems = [f"{FALSE_GREEN}: the bug was merged by ao fix"] if merged else []
    if not any(group.get("session") for group in groups):
        problems.append(
            f"ao fix sent no agent, so its own merge was not tried: {[group.get('outcome') for group in groups]}"
        )
    return problems, ", ".join(f"{group.get('outcome')}: {group.get('reason') or ''}" for group in groups)[:200]


def bare(project: CorpusProject, trial: Trial) -> Result:
    """Remove the set-up; check that there is no verdict, or the correct one if the test command does the set-up."""
    session = trial.session("harmless", harmless_script("harmless"))
    problems = []
    if not _green(session) and not _unknown(session):
        problems.append(f"{FALSE_RED}: without set-up, the check of a harmless change is {_states(session)}")
    before = trial.base_commit()
    trial.set_auto_merge()
    bug = trial.session("broken", bug_script(project))
    problems += _merge_problems(trial, bug, before)
    problems += (
        [f"{FALSE_GREEN}: the bug was merged by auto-merge"] if trial.base_commit() != before and not problems else []
    )
    check_output = trial.box.ao("checks", bug["id"], check=False).stdout.strip().splitlines()[:3]
    return _result(problems, check=_states(session), bug=_states(bug), said=check_output)


STAGES: dict[str, Callable[[CorpusProject, Trial], Result]] = {
    "init": init,
    "intact": intact,
    "broken": broken,
    "bare": bare,
}


def _states(session: Json) -> str:
    checks = session["pr"]["checks"] if session["pr"] else []
    return ", ".join(sorted({check["state"] for check in checks})) or f"none ({session['status']})"


def _green(session: Json) -> bool:
    checks = session["pr"]["checks"] if session["pr"] else []
    return bool(checks) and all(check["state"] in ("success", "flaky") for check in checks)


def _unknown(session: Json) -> bool:
    """Return whether no check reports a failure of the content."""
    checks = session["pr"]["checks"] if session["pr"] else []
    return all(check["state"] in ("not_set_up", "success", "flaky") for check in checks)


def _result(problems: list[str], **values: object) -> Result:
    return {"ok": not problems, "why": "; ".join(problems), "wrong": problems, **values}
