"""The stages that try our product on one project: `ao init`, a harmless change, the bug, and both without the set-up.

Each returns what was seen; `wrong` names what must not be.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ruamel.yaml import YAML

from tests.projects.corpus import Project
from tests.projects.counts import passed
from tests.projects.machine import environment, home
from tests.projects.registry import repository
from tests.projects.shell import shell
from tests.projects.state import Result
from tests.projects.trial import CONFIG, PLENTY, Json, Trial, harmless, planted

FALSE_GREEN = "false green"
FALSE_RED = "false red"


def init(project: Project, trial: Trial) -> Result:
    """`ao init --yes` as a new user does it: is the set-up found and proven, the test command right?"""
    done = trial.box.ao("init", "--yes", "--json", check=False)
    answer = json.loads(done.stdout) if done.stdout.strip().startswith("{") else {}
    proof = answer.get("proof") or {}
    checks = proof.get("checks", [])
    written = (trial.box.repo / CONFIG).is_file()
    config = trial.configuration() if written else ""
    proven = done.returncode == 0 and bool(proof.get("proven")) and all(one["state"] == "success" for one in checks)
    right = (project.passed, *project.accepted)
    counts = [one["passed"] for one in checks if one["name"] != "lint"]
    is_right = any(count in right for count in counts) or (bool(checks) and _counted(project, proof) in right)
    left = [one for one in trial.box.git("status", "--porcelain").splitlines() if not one.endswith(CONFIG)]
    return {
        "ok": proven and is_right and not left,
        "proven": proven,
        "right": is_right,
        "setUp": proof.get("setUp", {}).get("commands", []),
        "test": {one["name"]: one["command"] for one in checks},
        "counts": counts,
        "left": left,
        "why": proof.get("reason") or "" if proof else (done.stderr or done.stdout).strip()[-400:],
        "config": config,
    }


def _counted(project: Project, proof: Json) -> int:
    """How many tests pass with the commands that were written, by our own count."""
    commands = [one["command"] for one in proof.get("checks", []) if one["name"] != "lint"]
    with tempfile.TemporaryDirectory(prefix=f"ao-{project.name}-", ignore_cleanup_errors=True) as folder:
        env = environment(project, Path(folder, "home"))
        home(Path(folder, "home"), env)
        tree = Path(folder, project.name)
        subprocess.run(["git", "clone", "-q", str(repository(project)), str(tree)], check=True)
        for command in proof["setUp"]["commands"]:
            if shell(command, tree, env).code:
                return 0
        done = [shell(command, tree, env) for command in commands]
    return 0 if any(one.code for one in done) else sum(passed(project.runner, one.output) for one in done)


def intact(project: Project, trial: Trial) -> Result:
    """A change that breaks nothing is green and merged."""
    seen = trial.session("harmless", harmless("harmless"))
    before = trial.main()
    code, said = trial.merge(seen["id"])
    merged = trial.main() != before
    wrong = [] if _green(seen) else [f"{FALSE_RED}: the check of a harmless change is {_states(seen)}"]
    wrong += [] if merged and code == 0 else [f"{FALSE_RED}: a harmless change is not merged: {said[-300:]}"]
    return _result(wrong, check=_states(seen), merged=merged)


def broken(project: Project, trial: Trial) -> Result:
    """The bug is red, and nothing merges it; `ao fix` finds it and does not merge it either."""
    before = trial.main()
    trial.set_auto_merge()
    seen = trial.session("broken", planted(project))
    wrong = _not_merged(trial, seen, before)
    trial.branch("with-bug", {}, [project.bug])
    dry = trial.box.ao("fix", "--dry-run", "--base", "with-bug", "--json", check=False)
    run = json.loads(dry.stdout) if dry.stdout.strip().startswith("{") else {}
    found = run.get("before")
    unmeasured = dry.returncode and run.get("state") == "failed"  # the bug breaks a set-up that runs the tests
    if not found and not unmeasured:
        wrong.append(
            f"{FALSE_GREEN}: ao fix --dry-run finds {found} failures: {(dry.stderr or dry.stdout).strip()[-300:]}"
        )
    wrong_fix, outcome = _fixed(project, trial)
    wrong += wrong_fix
    wrong += [f"{FALSE_GREEN}: the bug was merged by auto-merge"] if trial.main() != before else []
    return _result(wrong, check=_states(seen), fix=found, outcome=outcome)


def _not_merged(trial: Trial, seen: Json, before: str) -> list[str]:
    """What is wrong where a session with the bug is green or gets merged by `ao merge` or, approved, by auto-merge."""
    wrong = [f"{FALSE_GREEN}: the check of the bug is {_states(seen)}"] if _green(seen) else []
    trial.approve(seen["id"])
    code, _ = trial.merge(seen["id"])
    if code == 0 or trial.main() != before:
        wrong.append(f"{FALSE_GREEN}: the bug was merged by ao merge or auto-merge")
    return wrong


def _fixed(project: Project, trial: Trial) -> tuple[list[str], str]:
    """What is wrong where `ao fix` merges a fix that brings the bug with it, and what came of each cause."""
    trial.branch("to-fix", {"ao-fails.txt": "This file is the failure.\n"})
    before = trial.box.git("rev-parse", "to-fix")
    script = f"[[sh: git rm -q ao-fails.txt]] {planted(project)} [[commit: Remove it]] [[done: removed]]"
    yaml = YAML()
    data = yaml.load(trial.configuration())
    data.setdefault("agents", {})["breaker"] = {"tool": "demo", "script": script}
    with (trial.box.repo / CONFIG).open("w") as file:
        yaml.dump(data, file)
    trial.box.ao("trust", "--yes")
    argv = ["--base", "to-fix", "--command", "test ! -e ao-fails.txt", "--agent", "breaker", "--max-rounds", "1"]
    done = trial.box.ao("fix", *argv, "--no-wait", "--json", check=False)
    if done.returncode:
        return [f"ao fix did not begin: {(done.stderr or done.stdout).strip()[-300:]}"], ""
    run = json.loads(done.stdout)["id"]

    def ended() -> Json:
        found: Json = trial.box.request("GET", f"/api/fixes/{run}")
        return found if found["ended"] else {}

    rounds = trial.box.until(ended, f"the end of {run}", PLENTY)["rounds"]
    groups = [group for each in rounds for group in each["groups"]]
    merged = trial.box.git("rev-parse", "to-fix") != before
    wrong = [f"{FALSE_GREEN}: the bug was merged by ao fix"] if merged else []
    if not any(group.get("session") for group in groups):
        wrong.append(f"ao fix sent no agent, so its own merge was not tried: {[one.get('outcome') for one in groups]}")
    return wrong, ", ".join(f"{one.get('outcome')}: {one.get('reason') or ''}" for one in groups)[:200]


def bare(project: Project, trial: Trial) -> Result:
    """With the set-up taken away: no verdict, or the right one where the tests' command sets up by itself."""
    seen = trial.session("harmless", harmless("harmless"))
    wrong = []
    if not _green(seen) and not _unknown(seen):
        wrong.append(f"{FALSE_RED}: without set-up, the check of a harmless change is {_states(seen)}")
    before = trial.main()
    trial.set_auto_merge()
    bug = trial.session("broken", planted(project))
    wrong += _not_merged(trial, bug, before)
    wrong += [f"{FALSE_GREEN}: the bug was merged by auto-merge"] if trial.main() != before and not wrong else []
    shown = trial.box.ao("checks", bug["id"], check=False).stdout.strip().splitlines()[:3]
    return _result(wrong, check=_states(seen), bug=_states(bug), said=shown)


STAGES: dict[str, Callable[[Project, Trial], Result]] = {"init": init, "intact": intact, "broken": broken, "bare": bare}


def _states(seen: Json) -> str:
    checks = seen["pr"]["checks"] if seen["pr"] else []
    return ", ".join(sorted({one["state"] for one in checks})) or f"none ({seen['status']})"


def _green(seen: Json) -> bool:
    checks = seen["pr"]["checks"] if seen["pr"] else []
    return bool(checks) and all(one["state"] in ("success", "flaky") for one in checks)


def _unknown(seen: Json) -> bool:
    """Whether no check claims a failure of the content."""
    checks = seen["pr"]["checks"] if seen["pr"] else []
    return all(one["state"] in ("not_set_up", "success", "flaky") for one in checks)


def _result(wrong: list[str], **seen: object) -> Result:
    return {"ok": not wrong, "why": "; ".join(wrong), "wrong": wrong, **seen}
