"""Scenarios at a forge while the daemon is killed; their ends are compared with the forge's own record."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable

from tests.faults.forge_server import IS_AVAILABLE, ForgeServer
from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.stage import CrashStage


class ForgeScenario(Scenario):
    """A clone of a repository at a forge that is polled every second."""

    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        "orchestrator: {{autoAssign: true}}\n"
        "agents:\n"
        "  tester: {{tool: demo, filters: {{labels: [needs-tests]}}}}\n"
        "projects:\n"
        "  app:\n"
        "    path: .\n"
        "    repo: acme/app\n"
        '    scm: &at {{plugin: github, apiUrl: "{url}", token: "{token}", poll: 1s}}\n'
        "    tracker: {{<<: *at, labels: {{inProgress: doing, inReview: reviewing}}}}\n"
        "reactions:\n"
        "{rules}"
    )
    rules = ""

    def prepare(self, stage: CrashStage) -> None:
        self.forge = ForgeServer()
        url, address, token = self.forge.ask("addresses")
        config = self.config.format(runtime=self.runtime, url=url, token=token, rules=self.rules)
        stage.box.repository(config=config)
        login = base64.b64encode(f"x:{token}".encode()).decode()
        git = stage.box.git
        git("remote", "add", "origin", address)
        git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
        git("reset", "-q", "--hard", "origin/main")

    def close(self) -> None:
        self.forge.close()

    def event_counts(self) -> Counter[tuple[str, str, str, str]]:
        """Return how often each event happened at the forge: event, action, number, person."""
        return Counter((event, action, number, who) for event, action, number, who, _ in self.forge.ask("record"))

    def count_problems(self, expected: dict[tuple[str, str, str, str], int]) -> list[str]:
        """Return the events that did not happen the expected number of times."""
        counts = self.event_counts()
        differing = {event: times for event, times in expected.items() if counts[event] != times}
        wrong = [f"{event} happened {counts[event]} times, not {times}" for event, times in differing.items()]
        return wrong + [f"inside the forge: {fault}" for fault in self.forge.ask("faults")]

    def is_base_synced(self, stage: CrashStage) -> bool:
        """Return whether the local base is at the forge's commit."""
        head = self.forge.ask("base")[0]
        return all(stage.box.git("rev-parse", name) == head for name in ("main", "origin/main"))


class ForgeMergeScenario(ForgeScenario):
    """A labelled issue is started; its check fails and is fixed, a comment is answered, it is approved and merged, the issue closed."""

    rules = (
        '  ci-failed: {message: "[[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]", backoff: 1s..1s}\n'
        "  approved-and-green: {auto: true}\n"
    )
    task = "[[write: broken.txt|x]] [[write: kept.txt|kept]] [[commit: break]] [[done: broken]]"
    comment = "Why? [[reply: {comment}|Because]] [[write: kept.txt|better]] [[commit: better]] [[done: better]]"

    def prepare(self, stage: CrashStage) -> None:
        super().prepare(stage)
        self.forge.ask("check_pushes")

    def play(self, stage: CrashStage) -> None:
        stage.ask("/api/sessions?all=1")
        stage.ao("add-project", str(stage.box.repo))
        self.issue = self.forge.ask("open_issue", "Mend it", self.task, "needs-tests")
        stage.wait_until(lambda: self._status(stage) == "review_pending", "the check to be mended")
        self.number = stage.session("mend-it")["pr"]["number"]
        self.forge.ask("discuss", self.number, "kept.txt", self.comment)
        before = self.forge.ask("pull", self.number)["head"]
        stage.wait_until(lambda: self._answered(stage, before), "the comment to be answered and worked on")
        self.approved = self.forge.ask("pull", self.number)["head"]
        self.forge.ask("approve", self.number)

    def _status(self, stage: CrashStage) -> str:
        sessions = [session for session in stage.ask("/api/sessions?all=1")["sessions"] if session["name"] == "mend-it"]
        is_checked = (
            sessions and sessions[0]["pr"] and any(check["state"] == "success" for check in sessions[0]["pr"]["checks"])
        )
        return str(sessions[0]["status"]) if is_checked else ""

    def _answered(self, stage: CrashStage, before: str) -> bool:
        pull = self.forge.ask("pull", self.number)
        now = stage.session("mend-it")
        return (
            len(pull["said"]) > 1
            and pull["head"] != before
            and now["head"] == pull["head"]
            and now["activity"] == "idle"
        )

    def is_settled(self, stage: CrashStage) -> bool:
        session = stage.session("mend-it")
        is_settled = session["status"] == "merged" and session["workspacePath"] is None and session["pid"] is None
        issue_state = self.forge.ask("issue", self.issue)
        is_branch_deleted = self.forge.ask("pull", self.number)["branch"] is None
        return (
            is_settled
            and is_branch_deleted
            and issue_state["state"] == "closed"
            and "reviewing" not in issue_state["labels"]
            and self.is_base_synced(stage)
        )

    def problems(self, stage: CrashStage) -> list[str]:
        number, issue = str(self.number), str(self.issue)
        pull, issue_state = self.forge.ask("pull", self.number), self.forge.ask("issue", self.issue)
        _, titles, files = self.forge.ask("base")
        wrong = self.count_problems(
            {
                ("pull_request", "opened", number, "dev"): 1,
                ("pull_request", "ready_for_review", number, "dev"): 1,
                ("pull_request", "closed", number, "dev"): 1,
                ("pull_request", "synchronize", number, "dev"): 2,
                ("pull_request_review_comment", "created", number, "dev"): 1,
                ("issue_comment", "created", issue, "dev"): 1,
                ("issues", "assigned", issue, "dev"): 1,
                ("issues", "closed", issue, "dev"): 1,
                ("issues", "reopened", issue, "dev"): 0,
                ("issues", "labeled", issue, "dev"): 2,
            }
        )
        wrong += [f"there are {self.forge.ask('pulls')} pull requests"] * (self.forge.ask("pulls") != 1)
        if (pull["state"], pull["head"], pull["branch"]) != ("merged", self.approved, None):
            wrong.append(f"approved was {self.approved}, and the pull request is {pull}")
        if titles != [f"Mend it (#{self.number})", "Initial commit"] or sorted(files) != ["README.md", "kept.txt"]:
            wrong.append(f"the base has {titles} with {files}")
        first_lines = [text.partition("\n")[0] for text in pull["said"]]
        wrong += [f"the discussion is {pull['said']}, beside it {pull['comments']}"] * (
            first_lines[1:] != ["Because"] or bool(pull["comments"])
        )
        wrong += [f"the issue is {issue_state}"] * (
            issue_state["labels"] != ["needs-tests"] or len(issue_state["comments"]) != 1
        )
        branches = stage.box.git("branch", "--format=%(refname:short)").split()
        wrong += [f"the branches are {branches}"] * (branches != ["main"])
        received = stage.delivered_messages()
        wrong += [f"the agent heard {received}"] * (
            len(received) != 2 or "rm broken.txt" not in received[0] or "Why?" not in received[1]
        )
        return wrong + stage.delivery_problems("app-mend-it", received)


class ForgeActionsScenario(ForgeScenario):
    """A person marks it ready, reruns its checks, enables and cancels auto-merge, and closes it: each happens once at the forge."""

    rules = "  ci-failed: {auto: false}\n"

    def play(self, stage: CrashStage) -> None:
        stage.ask("/api/sessions?all=1")
        stage.ao("add-project", str(stage.box.repo))
        self.forge.ask("demand", "never")
        stage.ao("new", "[[write: a.txt|a]] [[commit: a]] [[wait]]", "--name", "asked")
        stage.wait_until(lambda: stage.session("asked")["pr"], "its pull request")
        self.number = stage.session("asked")["pr"]["number"]
        stage.ao("api", "POST", "/sessions/asked/ready")
        self.forge.ask("check", self.number, "tests", "failure")
        stage.wait_until(lambda: self._checks(stage, "failure"), "the check to be seen")
        stage.ao("checks", "asked", "--run")
        stage.wait_until(lambda: self.event_counts()["check_suite", "rerequested", "", "dev"], "it to be run again")
        self.forge.ask("check", self.number, "tests", "success")
        stage.wait_until(lambda: self._checks(stage, "success"), "the check to be seen again")
        stage.ao("merge", "asked", "--no-wait")
        stage.wait_until(lambda: self.forge.ask("pull", self.number)["autoMerge"], "it to be handed over")
        stage.ao("merge", "asked", "--cancel")
        stage.ao("api", "POST", "/sessions/asked/close")

    def _checks(self, stage: CrashStage, state: str) -> bool:
        return [check["state"] for check in stage.session("asked")["pr"]["checks"]] == [state]

    def is_settled(self, stage: CrashStage) -> bool:
        return (
            bool(stage.session("asked")["status"] == "closed")
            and self.forge.ask("pull", self.number)["state"] == "closed"
        )

    def problems(self, stage: CrashStage) -> list[str]:
        number = str(self.number)
        pull = self.forge.ask("pull", self.number)
        wrong = self.count_problems(
            {
                ("pull_request", "opened", number, "dev"): 1,
                ("pull_request", "ready_for_review", number, "dev"): 1,
                ("check_suite", "rerequested", "", "dev"): 1,
                ("pull_request", "auto_merge_enabled", number, "dev"): 1,
                ("pull_request", "auto_merge_disabled", number, "dev"): 1,
                ("pull_request", "closed", number, "dev"): 1,
            }
        )
        wrong += [f"the pull request is {pull}"] * (pull["draft"] or pull["autoMerge"] or pull["merged"] is not None)
        return wrong + stage.delivery_problems("app-asked", [])


FORGES: dict[str, Callable[[str], Scenario]] = (
    {"forge": ForgeMergeScenario, "asked": ForgeActionsScenario} if IS_AVAILABLE else {}
)
"""Empty if GitHub's published schema was not fetched."""
