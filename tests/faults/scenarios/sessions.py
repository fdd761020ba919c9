"""Scenarios of sessions: messages, permission requests and questions, stop and restore."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

from tests.faults.scenarios.scenario import Scenario
from tests.faults.scenarios.stage import CrashStage


class MessagesScenario(Scenario):
    """A session and three messages, which the agent acknowledges."""

    texts: tuple[str, ...] = ("[[say: one]]", "[[say: two]]", "[[say: three]]")

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", "[[say: begun]]", "--name", "talk")
        for text in self.texts:
            stage.ao("send", "talk", text)

    def is_settled(self, stage: CrashStage) -> bool:
        final = [message["state"] in ("acknowledged", "failed") for message in stage.messages("talk")]
        return len(final) >= len(self.texts) and all(final) and stage.session("talk")["status"] == "idle"

    def problems(self, stage: CrashStage) -> list[str]:
        return stage.delivery_problems("app-talk", list(self.texts))


READER_PROGRAM = """\
import json, os, sys
def note(**entry):
    with open(os.environ["READER_LOG"], "a") as log:
        log.write(json.dumps(entry) + "\\n")
note(event="start", resume="--resume" in sys.argv, pid=os.getpid())
while True:
    text = input("> ")
    note(event="message", text=text)
    print("heard", text)
"""


class TypedScenario(MessagesScenario):
    """The same with a command-line program that gets its task typed and acknowledges nothing."""

    texts = ("one", "two", "three")

    def prepare(self, stage: CrashStage) -> None:
        program = stage.box.folder / "reader_agent.py"
        program.write_text(READER_PROGRAM)
        command = json.dumps([sys.executable, "-I", "-S", str(program)])
        screen = "screen: {ready: '^> $'}"
        log = json.dumps({"READER_LOG": str(stage.agent_log)})
        agent = f"agents:\n  reader: {{tool: command, command: {command}, prompt: paste, {screen}, env: {log}}}\n"
        stage.box.repository(config=f"defaults: {{agent: reader, runtime: {self.runtime}}}\n{agent}")

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", "begun", "--name", "talk")
        for text in self.texts:
            stage.ao("send", "talk", text)

    def is_settled(self, stage: CrashStage) -> bool:
        final = [message["state"] in ("delivered", "failed") for message in stage.messages("talk")]
        return len(final) > len(self.texts) and all(final) and len(stage.delivered_messages()) > len(self.texts)

    def problems(self, stage: CrashStage) -> list[str]:
        return stage.delivery_problems("app-talk", ["begun", *self.texts])


RECALLING_PLUGIN = """\
import dataclasses, sys, uuid
from agent_orchestrator.plugins.agents.demo import Demo

NOTE = "import json, os, sys; file = open(os.environ['AO_DEMO_LOG'], 'a'); "
NOTE += "file.write(json.dumps({'event': 'conversation', 'id': sys.argv[1]}) + chr(10)); file.close(); "
NOTE += "os.execv(sys.argv[2], sys.argv[2:])"

class Recalling(Demo):
    slot, name = "agent", "recalling"

    async def launch(self, context):
        plan, conversation = await super().launch(context), context.resume or uuid.uuid4().hex
        argv = (sys.executable, "-I", "-S", "-c", NOTE, conversation, *plan.argv)
        return dataclasses.replace(plan, argv=argv, conversation=conversation)
"""


class RestoreScenario(Scenario):
    """A session is stopped with uncommitted work, restored in the same conversation, sent a message, and stopped again."""

    config = "defaults: {{agent: recalling, runtime: {runtime}}}\nplugins: [{{path: ../recalling.py}}]\n"

    def prepare(self, stage: CrashStage) -> None:
        (stage.box.folder / "recalling.py").write_text(RECALLING_PLUGIN)
        super().prepare(stage)

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", "[[write: draft.txt|unsaved]]", "--name", "life")
        stage.wait_until(lambda: stage.session("life")["status"] == "idle", "the end of its turn")
        stage.ao("stop", "life")
        stage.ao("restore", "life")
        stage.wait_until(lambda: stage.session("life")["status"] == "idle", "it to be back")
        stage.ao("send", "life", "[[edit: draft.txt|more]]")
        stage.wait_until(lambda: stage.messages("life")[-1]["state"] == "acknowledged", "the message to be taken up")
        stage.wait_until(lambda: stage.session("life")["status"] == "idle", "the end of its turn")
        stage.ao("stop", "life")

    def is_settled(self, stage: CrashStage) -> bool:
        return bool(stage.session("life")["status"] == "stopped")

    def problems(self, stage: CrashStage) -> list[str]:
        now = stage.session("life")
        wrong = stage.delivery_problems("app-life", ["[[edit: draft.txt|more]]"], starts=(1, 1))
        conversations = [entry["id"] for entry in stage.log("conversation")]
        if len(conversations) != 2 or len({*conversations}) != 1:
            wrong.append(f"the conversations were {conversations}")
        try:
            saved = stage.box.git("show", "refs/ao/rescue/app-life:draft.txt").split()
        except subprocess.CalledProcessError:
            saved = []
        if saved != ["unsaved", "more"]:
            wrong.append(f"what was saved is {saved}")
        if now["workspacePath"] or (stage.box.home.path / "worktrees/app/life").exists():
            wrong.append(f"the workspace {now['workspacePath']} is left behind")
        return wrong


class AnswersScenario(Scenario):
    """An agent asks for permission twice, then a question; each answer applies to its own request."""

    task = "[[block: First?]] [[say: first]] [[block: Second?]] [[say: second]] [[ask: Which?]] [[say: {answer}]]"

    def play(self, stage: CrashStage) -> None:
        stage.ao("new", self.task, "--name", "ask")
        for question, answer in (("First?", "--allow"), ("Second?", "--deny"), ("Which?", "blue")):
            stage.wait_until(functools.partial(self._asks, stage, question), f"the question {question}")
            stage.ao("answer", "ask", answer)

    def _asks(self, stage: CrashStage, question: str) -> bool:
        return any(
            question in question_record["text"] for question_record in stage.ask("/api/questions?all=1")["questions"]
        )

    def is_settled(self, stage: CrashStage) -> bool:
        return bool(stage.session("ask")["status"] == "idle")

    def problems(self, stage: CrashStage) -> list[str]:
        chosen = [(entry["question"], entry["key"]) for entry in stage.log("choice")]
        wrong = [] if chosen == [("First?", "y"), ("Second?", "n")] else [f"the agent was answered {chosen}"]
        stray = [entry["text"] for entry in stage.log("dialog-input")]
        return wrong + [f"typed into the dialog: {stray}"] * bool(stray) + stage.delivery_problems("app-ask", ["blue"])
