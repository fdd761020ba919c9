"""Scenarios of changes: merged, reviewed and stacked."""

from __future__ import annotations

from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.stage import CrashStage


class MergeScenario(Scenario):
    """An issue is started, a check fails, the agent fixes it, a person approves, it is merged."""

    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        'ci: {{command: "test ! -e broken.txt"}}\n'
        "reactions:\n"
        '  ci-failed: {{message: "[[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]", backoff: 1s..1s}}\n'
        "  approved-and-green: {{auto: true}}\n"
    )
    task = "[[write: broken.txt|x]] [[write: kept.txt|kept]] [[commit: break]] [[done: broken]]"

    def play(self, stage: CrashStage) -> None:
        stage.ao("issue", "new", "Mend it", "-m", self.task)
        stage.ao("new", "#1", "--name", "mend")
        stage.wait_until(lambda: stage.session("mend")["status"] == "review_pending", "the check to be mended")
        stage.ao("review", "mend", "--approve")

    def is_settled(self, stage: CrashStage) -> bool:
        now = stage.session("mend")
        return now["status"] == "merged" and now["workspacePath"] is None and now["pid"] is None

    def problems(self, stage: CrashStage) -> list[str]:
        issues = [(issue["title"], issue["state"]) for issue in stage.ask("/api/issues?all=1&state=all")["issues"]]
        wrong = [] if issues == [("Mend it", "closed")] else [f"the issues are {issues}"]
        wrong += stage.delivery_problems("app-mend", ["[[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]"])
        return wrong + merge_problems(stage, ["Mend it (#2)"], {"README.md", "kept.txt"})


class ReviewScenario(Scenario):
    """A reviewer comments on a line; the agent gets it once and answers; a person merges and reverts it."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"
    task = (
        "Write a\n[[write: a.txt|x]] [[commit: a]] [[done: a]] [[wait]] "
        "[[write: a.txt|y]] [[commit: better]] [[reply: {comment}|better now]] [[done: b]]"
    )

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", self.task, "--name", "rev")
        stage.wait_until(lambda: stage.session("rev")["status"] == "review_pending", "the pull request to be ready")
        stage.ao("review", "rev", "--comment", "a.txt:1:why x?")
        stage.wait_until(lambda: len(self._comments(stage)) > 1, "the agent's answer")
        stage.wait_until(lambda: stage.session("rev")["activity"] == "idle", "the end of its turn")
        stage.ao("merge", "rev")
        stage.wait_until(lambda: self._gone(stage, "rev"), "the first landing")
        stage.ao("undo", "rev")
        stage.ao("merge", "revert-write-a")

    def _comments(self, stage: CrashStage) -> list[str]:
        threads = stage.ask("/api/sessions/rev/review")["threads"]
        return [comment["body"] for thread in threads for comment in thread["comments"]]

    def _gone(self, stage: CrashStage, name: str) -> bool:
        now = stage.session(name)
        return now["status"] == "merged" and now["workspacePath"] is None and now["pid"] is None

    def is_settled(self, stage: CrashStage) -> bool:
        return self._gone(stage, "rev") and self._gone(stage, "revert-write-a")

    def problems(self, stage: CrashStage) -> list[str]:
        received, comments = stage.delivered_messages(), self._comments(stage)
        wrong = [] if len(received) == 1 and "why x?" in received[0] else [f"the comment was heard as {received}"]
        wrong += [] if comments == ["why x?", "better now"] else [f"the thread is {comments}"]
        text = stage.box.git("show", "main~1:a.txt")
        wrong += [] if text == "y" else [f"what landed is {text!r}"]
        titles = ["Revert Write a (#2)", "Write a (#1)"]
        return wrong + merge_problems(stage, titles, {"README.md"}) + stage.delivery_problems("app-rev", received)


class StackedScenario(Scenario):
    """A change is stacked on another one; that is merged, and the first is rebased onto the base and merged too."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", "Low\n[[write: low.txt|low]] [[commit: low]] [[done: low]]", "--name", "low")
        stage.wait_until(lambda: stage.session("low")["status"] == "review_pending", "the one below")
        task = "High\n[[write: high.txt|high]] [[commit: high]] [[done: high]]"
        stage.ao("new", task, "--name", "high", "--after", "low", "--stack")
        stage.wait_until(lambda: stage.session("high")["status"] == "review_pending", "the one above")
        stage.ao("merge", "low")
        stage.wait_until(lambda: self._stands(stage), "the one above to stand on the base")
        stage.wait_until(lambda: stage.session("high")["pr"]["mergeable"] == "yes", "it to be compared")
        stage.ao("merge", "high")

    def _stands(self, stage: CrashStage) -> bool:
        now = stage.session("high")
        if now["base"] != "main" or now["pr"]["base"] != "main":
            return False
        tip = stage.box.git("rev-parse", now["branch"])
        return tip == now["head"] and stage.box.git("merge-base", "main", tip) == stage.box.git("rev-parse", "main")

    def is_settled(self, stage: CrashStage) -> bool:
        now = [stage.session(name) for name in ("low", "high")]
        return all(
            session["status"] == "merged" and session["workspacePath"] is None and session["pid"] is None
            for session in now
        )

    def problems(self, stage: CrashStage) -> list[str]:
        wrong = stage.delivery_problems("app-low", [], starts=(2, 0)) + stage.delivery_problems(
            "app-high", [], starts=(2, 0)
        )
        return wrong + merge_problems(stage, ["High (#2)", "Low (#1)"], {"README.md", "low.txt", "high.txt"})


def merge_problems(stage: CrashStage, titles: list[str], files: set[str]) -> list[str]:
    """Return the differences of the base's titles and files from the expected ones, and branches that were not removed."""
    git, wrong = stage.box.git, []
    if (base_titles := git("log", "--format=%s", "main").splitlines()) != [*titles, "start"]:
        wrong.append(f"main has {base_titles}")
    if (base_files := set(git("ls-tree", "--name-only", "main").splitlines())) != files:
        wrong.append(f"main holds {base_files}, not {files}")
    if (branches := git("branch", "--format=%(refname:short)").split()) != ["main"]:
        wrong.append(f"the branches are {branches}")
    return wrong
