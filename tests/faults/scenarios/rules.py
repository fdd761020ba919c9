"""Scenarios of reaction rules: commands, other sessions, and reviews by an agent."""

from __future__ import annotations

from typing import Any

from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.stage import CrashStage


class CommandScenario(Scenario):
    """A rule's command runs to its end; one that a crash interrupted is repeated and marked so; never two at once."""

    script = "echo begun $$ 0$AO_REPEATED >>$COMMAND_LOG; sleep 1; echo ended $$ >>$COMMAND_LOG"
    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        "reactions:\n"
        "  deploy-ready: {{action: command, command: '{script}', timeout: 20s}}\n"
    )

    def prepare(self, stage: CrashStage) -> None:
        script = self.script.replace("$COMMAND_LOG", str(stage.box.folder / "ran"))
        stage.box.repository(config=self.config.format(runtime=self.runtime, script=script))

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", "[[report: deploy-ready|to=staging]]", "--name", "ship")

    def _reports(self, stage: CrashStage) -> list[dict[str, Any]]:
        return [event["data"] for page in stage.event_pages() for event in page if event["type"] == "command-finished"]

    def is_settled(self, stage: CrashStage) -> bool:
        return bool(self._reports(stage)) and stage.session("ship")["status"] == "idle"

    def problems(self, stage: CrashStage) -> list[str]:
        reports, kills = self._reports(stage), len(stage.statements_and_kills()[1])
        lines = [line.split() for line in (stage.box.folder / "ran").read_text().splitlines()]
        starts = [(pid, repeated == "01") for kind, pid, *rest in lines if kind == "begun" for repeated in rest]
        ended = [pid for kind, pid, *_ in lines if kind == "ended"]
        wrong = [] if len(reports) == 1 and reports[0]["code"] == 0 else [f"the command's end was told as {reports}"]
        if not 1 <= len(starts) <= 1 + kills or any(not repeated for _, repeated in starts[1:]):
            wrong.append(f"with {kills} deaths it ran as {starts}")
        if reports and starts and bool(reports[-1].get("repeated")) != starts[-1][1]:
            wrong.append(f"it ran as {starts}, and was told as {reports}")
        if ended[-1:] != [starts[-1][0]] or len(ended) > len(starts):
            wrong.append(f"of {starts} these came to their end: {ended}")
        order = [pid for _, pid, *_ in lines]
        runs = [pid for index, pid in enumerate(order) if index == 0 or order[index - 1] != pid]
        return (
            wrong
            + [f"two ran at once: {lines}"] * (len(runs) != len({*runs}))
            + stage.delivery_problems("app-ship", [])
        )


class SpawnScenario(Scenario):
    """A rule starts another agent on a session's commit; an issue without a session is started because of its label."""

    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        "agents:\n"
        "  lead: {{tool: demo, reactions: {{deploy-ready: {{action: spawn, agent: demo, message: '[[say: help {{{{session.id}}}}]]'}}}}}}\n"
        "reactions:\n"
        "  label-added: {{condition: \"label == 'agent'\", action: spawn, auto: true, message: '[[say: {{{{issue.title}}}}]]'}}\n"
    )

    def play(self, stage: CrashStage) -> None:
        task = "[[write: a.txt|x]] [[commit: a]] [[report: deploy-ready]]"
        stage.ao("new", task, "--name", "lead", "--agent", "lead")
        stage.wait_until(lambda: stage.session("say-help-app-lead")["status"] == "idle", "the helper")
        stage.ao("issue", "new", "Tidy")
        stage.ao("issue", "label", "2", "agent")

    def _tasks(self, stage: CrashStage) -> dict[str, str]:
        sessions = stage.ask("/api/sessions?all=1")["sessions"]
        return {session["id"]: stage.ask(f"/api/sessions/{session['id']}/prompt")["prompt"] for session in sessions}

    def is_settled(self, stage: CrashStage) -> bool:
        sessions = stage.ask("/api/sessions?all=1")["sessions"]
        return len(sessions) >= 3 and all(session["activity"] == "idle" for session in sessions)

    def problems(self, stage: CrashStage) -> list[str]:
        created = {name: text for name, text in self._tasks(stage).items() if name != "app-lead"}
        expected = {"app-say-help-app-lead": "[[say: help app-lead]]", "app-tidy": "[[say: Tidy]]"}
        wrong = [] if created == expected else [f"the sessions that were made are {created}"]
        files = stage.box.git("ls-tree", "--name-only", "feature/say-help-app-lead").split()
        wrong += [] if "a.txt" in files else [f"the helper began at {files}"]
        return wrong + stage.delivery_problems("app-lead", [], starts=(3, 0))


class AgentReviewScenario(Scenario):
    """A rule has an agent review a change: it requests changes, then approves, once each, and is cleaned up."""

    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        "agents:\n"
        "  critic:\n"
        "    tool: demo\n"
        "    role: reviewer\n"
        "    script: '[[review: changes_requested|not yet|a.txt:1:why x?]] [[wait]] [[review: approved|good now]] [[wait]]'\n"
        "reactions:\n"
        "  pr-ready: {{action: spawn, agent: critic}}\n"
        "  changes-requested: {{message: 'CHANGE {{{{comments}}}}'}}\n"
    )
    task = "Write a\n[[write: a.txt|x]] [[commit: a]] [[done: a]] [[wait]] [[write: a.txt|y]] [[commit: b]] [[done: b]] [[wait]]"

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", self.task, "--name", "work")

    def is_settled(self, stage: CrashStage) -> bool:
        sessions = {session["id"]: session for session in stage.ask("/api/sessions?all=1")["sessions"]}
        reviewer = sessions.get("app-review-work")
        return bool(
            reviewer
            and reviewer["status"] == "stopped"
            and reviewer["workspacePath"] is None
            and sessions["app-work"]["activity"] == "idle"
            and "review/" not in stage.box.git("branch", "--format=%(refname:short)")
        )

    def problems(self, stage: CrashStage) -> list[str]:
        review = stage.ask("/api/sessions/work/review")
        verdicts = [(record["verdict"], record["body"], record["author"]) for record in review["reviews"]]
        expected = [("changes_requested", "not yet", "critic"), ("approved", "good now", "critic")]
        wrong = [] if verdicts == expected else [f"the judgements are {verdicts}"]
        comments = [comment["body"] for thread in review["threads"] for comment in thread["comments"]]
        wrong += [] if comments == ["why x?"] else [f"the comments are {comments}"]
        rounds = [
            record["data"].get("round", 1)
            for page in stage.event_pages()
            for record in page
            if record["type"] == "review-requested"
        ]
        wrong += [] if rounds == [1, 2] else [f"it was asked for in rounds {rounds}"]
        heard = stage.delivered_messages()
        was_heard = (
            len(heard) == 2 and heard[0].startswith("CHANGE") and "why x?" in heard[0] and "moved on" in heard[1]
        )
        wrong += [] if was_heard else [f"the agents heard {heard}"]
        return wrong + stage.delivery_problems("app-work", heard, starts=(2, 0))
