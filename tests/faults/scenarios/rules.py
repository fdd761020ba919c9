"""Stories of reaction rules: commands, other sessions, and reviews by an agent."""

from __future__ import annotations

from typing import Any

from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.stage import Stage


class Command(Scenario):
    """A rule's command runs to its end. One that a death cut off is run again and told so; never two at once."""

    script = "echo begun $$ 0$AO_REPEATED >>$COMMAND_LOG; sleep 1; echo ended $$ >>$COMMAND_LOG"
    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        "reactions:\n"
        "  deploy-ready: {{action: command, command: '{script}', timeout: 20s}}\n"
    )

    def prepare(self, stage: Stage) -> None:
        script = self.script.replace("$COMMAND_LOG", str(stage.box.folder / "ran"))
        stage.box.repository(config=self.config.format(runtime=self.runtime, script=script))

    def play(self, stage: Stage) -> None:
        stage.ao("new", "[[report: deploy-ready|to=staging]]", "--name", "ship")

    def _told(self, stage: Stage) -> list[dict[str, Any]]:
        return [one["data"] for page in stage.pages() for one in page if one["type"] == "command-finished"]

    def settled(self, stage: Stage) -> bool:
        return bool(self._told(stage)) and stage.session("ship")["status"] == "idle"

    def wrong(self, stage: Stage) -> list[str]:
        told, kills = self._told(stage), len(stage.traced()[1])
        lines = [line.split() for line in (stage.box.folder / "ran").read_text().splitlines()]
        begun = [(pid, repeated == "01") for what, pid, *rest in lines if what == "begun" for repeated in rest]
        ended = [pid for what, pid, *_ in lines if what == "ended"]
        wrong = [] if len(told) == 1 and told[0]["code"] == 0 else [f"the command's end was told as {told}"]
        if not 1 <= len(begun) <= 1 + kills or any(not repeated for _, repeated in begun[1:]):
            wrong.append(f"with {kills} deaths it ran as {begun}")
        if told and begun and bool(told[-1].get("repeated")) != begun[-1][1]:
            wrong.append(f"it ran as {begun}, and was told as {told}")
        if ended[-1:] != [begun[-1][0]] or len(ended) > len(begun):
            wrong.append(f"of {begun} these came to their end: {ended}")
        order = [pid for _, pid, *_ in lines]
        apart = [pid for place, pid in enumerate(order) if place == 0 or order[place - 1] != pid]
        return wrong + [f"two ran at once: {lines}"] * (len(apart) != len({*apart})) + stage.once("app-ship", [])


class Spawned(Scenario):
    """A rule has another agent go on where the first one is; an issue that nobody works on is taken up because of its label."""

    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        "agents:\n"
        "  lead: {{tool: demo, reactions: {{deploy-ready: {{action: spawn, agent: demo, message: '[[say: help {{{{session.id}}}}]]'}}}}}}\n"
        "reactions:\n"
        "  label-added: {{condition: \"label == 'agent'\", action: spawn, auto: true, message: '[[say: {{{{issue.title}}}}]]'}}\n"
    )

    def play(self, stage: Stage) -> None:
        task = "[[write: a.txt|x]] [[commit: a]] [[report: deploy-ready]]"
        stage.ao("new", task, "--name", "lead", "--agent", "lead")
        stage.until(lambda: stage.session("say-help-app-lead")["status"] == "idle", "the helper")
        stage.ao("issue", "new", "Tidy")
        stage.ao("issue", "label", "2", "agent")

    def _tasks(self, stage: Stage) -> dict[str, str]:
        sessions = stage.ask("/api/sessions?all=1")["sessions"]
        return {one["id"]: stage.ask(f"/api/sessions/{one['id']}/prompt")["prompt"] for one in sessions}

    def settled(self, stage: Stage) -> bool:
        sessions = stage.ask("/api/sessions?all=1")["sessions"]
        return len(sessions) >= 3 and all(one["activity"] == "idle" for one in sessions)

    def wrong(self, stage: Stage) -> list[str]:
        made = {name: text for name, text in self._tasks(stage).items() if name != "app-lead"}
        wanted = {"app-say-help-app-lead": "[[say: help app-lead]]", "app-tidy": "[[say: Tidy]]"}
        wrong = [] if made == wanted else [f"the sessions that were made are {made}"]
        there = stage.box.git("ls-tree", "--name-only", "feature/say-help-app-lead").split()
        wrong += [] if "a.txt" in there else [f"the helper began at {there}"]
        return wrong + stage.once("app-lead", [], starts=(3, 0))


class Judged(Scenario):
    """A rule has an agent judge a change: asked for more, it looks again and approves, once each as seen by everybody, and goes."""

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

    def play(self, stage: Stage) -> None:
        stage.ao("new", self.task, "--name", "work")

    def settled(self, stage: Stage) -> bool:
        sessions = {one["id"]: one for one in stage.ask("/api/sessions?all=1")["sessions"]}
        reviewer = sessions.get("app-review-work")
        return bool(
            reviewer
            and reviewer["status"] == "stopped"
            and reviewer["workspacePath"] is None
            and sessions["app-work"]["activity"] == "idle"
            and "review/" not in stage.box.git("branch", "--format=%(refname:short)")
        )

    def wrong(self, stage: Stage) -> list[str]:
        review = stage.ask("/api/sessions/work/review")
        verdicts = [(one["verdict"], one["body"], one["author"]) for one in review["reviews"]]
        wanted = [("changes_requested", "not yet", "critic"), ("approved", "good now", "critic")]
        wrong = [] if verdicts == wanted else [f"the judgements are {verdicts}"]
        comments = [comment["body"] for thread in review["threads"] for comment in thread["comments"]]
        wrong += [] if comments == ["why x?"] else [f"the comments are {comments}"]
        asked = [
            one["data"].get("round", 1) for page in stage.pages() for one in page if one["type"] == "review-requested"
        ]
        wrong += [] if asked == [1, 2] else [f"it was asked for in rounds {asked}"]
        heard = stage.heard()
        told = len(heard) == 2 and heard[0].startswith("CHANGE") and "why x?" in heard[0] and "moved on" in heard[1]
        wrong += [] if told else [f"the agents heard {heard}"]
        return wrong + stage.once("app-work", heard, starts=(2, 0))
