"""What is done while the daemon is killed: one small story each, played by a person on the command line, and what must be true in the end.

Every end is compared with evidence that the daemon did not write: the agents' own log, Git's history, files and processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent_orchestrator.client.daemon_client import alive
from agent_orchestrator.errors import AoError, Unreachable
from agent_orchestrator.testing.sandbox import Sandbox
from tests.faults import forking
from tests.faults.crashing import KILLED

T = TypeVar("T")

PATIENCE = 90.0
LITTER = ("launch.", "spec.", "message.")
"""What a terminal is started with, and what is to be typed into it: meant for one reading."""
LOST = ("Traceback", "unexpectedly", "level=error")


class Stage:
    """A home, a repository, a daemon that is killed at one statement, and the person who goes on as if nothing had been."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.truth = Path(box.env["AO_DEMO_LOG"])
        self.plan, self.trace = box.folder / "plan", box.folder / "trace"
        box.env["AO_CRASH_PLAN"] = str(self.plan)
        self.daemon: forking.Child | None = None
        self.refused: list[str] = []

    # -- the daemon ----------------------------------------------------------------------------------------------------

    def start(self, plan: Sequence[str]) -> None:
        """Start the first daemon; each dies where the plan says, those that come after it not at all."""
        self.plan.write_text("\n".join(plan))
        self._fork()

    def _fork(self) -> None:
        """Start a daemon, and wait until it serves or is dead."""
        self.box.home.info.unlink(missing_ok=True)
        self.daemon = started = forking.daemon(self.box.env, self.box.folder / "early.log")
        self.box.until(
            lambda: not self.lives() or self.box.daemon_pid() == started.pid, "the daemon to serve or die", 30
        )

    def lives(self) -> bool:
        """Does the daemon that was started here live?"""
        return self.daemon is not None and self.daemon.poll() is None

    def traced(self) -> tuple[list[str], list[str]]:
        """All statements so far, and those at which a daemon was killed."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        told = [line.partition(" ")[::2] for line in lines]
        return [words for first, words in told if first != KILLED], [words for first, words in told if first == KILLED]

    def end(self) -> None:
        """End the daemon in good order, if it still lives; it may be killed while it does."""
        if self.daemon is not None and self.lives():
            os.kill(self.daemon.pid, signal.SIGTERM)
            self.box.until(lambda: not self.lives(), "the daemon to end", 60)

    def close(self) -> None:
        """The play is over: whichever daemon serves is killed."""
        own = self.daemon.pid if self.daemon is not None and self.lives() else None
        for pid in {own, self.box.daemon_pid()}:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.box.until(lambda: not self.lives(), "the daemon to end")
        self.box.home.info.unlink(missing_ok=True)

    # -- the person ----------------------------------------------------------------------------------------------------

    def ao(self, *argv: str) -> str:
        """A command; one that is refused is told at the end."""
        done = forking.command(argv, self.box.env, self.box.repo, self.box.folder)
        if done.code:
            self.refused.append(f"ao {' '.join(argv)}: exit {done.code}: {done.err.strip()}")
        return done.out

    def ask(self, path: str) -> Any:
        """Read something; a dead daemon is started anew."""
        end = time.monotonic() + PATIENCE
        while True:
            pid = self.box.daemon_pid()
            if not self.lives() and (pid is None or not alive(pid)):
                self._fork()
            try:
                return self.box.request("GET", path)
            except Unreachable:  # it dies, or another one is on its way
                if time.monotonic() > end:
                    raise TimeoutError(f"no daemon answers within {PATIENCE:g} s") from None
                time.sleep(0.05)

    def session(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/api/sessions/{name}")
        return found

    def messages(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(f"/api/sessions/{name}/messages")["messages"]
        return found

    def until(self, holds: Callable[[], T], what: str) -> T:
        """Look until something is so."""
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(AoError):
                if value := holds():
                    return value
            if time.monotonic() > end:
                shown = [(one["id"], one["status"], one["why"]) for one in self.ask("/api/sessions?all=1")["sessions"]]
                raise TimeoutError(f"waited {PATIENCE:g} s in vain for {what}; the sessions: {shown}")
            time.sleep(0.05)

    # -- evidence ------------------------------------------------------------------------------------------------------

    def log(self, event: str) -> list[dict[str, Any]]:
        """What the agents wrote down themselves."""
        lines = self.truth.read_text(errors="replace").splitlines() if self.truth.exists() else []
        return [entry for line in lines if (entry := json.loads(line))["event"] == event]

    def heard(self) -> list[str]:
        """The messages that reached an agent, in order."""
        return [entry["text"] for entry in self.log("message")]

    def agents(self) -> dict[str, list[int]]:
        """Live agents by session, as the kernel knows them."""
        found: dict[str, list[int]] = {}
        spool = f"AO_SPOOL={self.box.home.path}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes().split(b"\0")
                if (
                    b"agent.py" not in command
                    or b"pty_holder" in command
                    or not any(v.startswith(spool) for v in environ)
                ):
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    named = next(v for v in environ if v.startswith(b"AO_SESSION="))
                    found.setdefault(named.partition(b"=")[2].decode(), []).append(int(entry.name))
        return found

    def wrong(self) -> list[str]:
        """What is wrong whatever was played."""
        wrong = list(self.refused)
        agents = self.agents()
        sessions = self.ask("/api/sessions?all=1")["sessions"]
        shown = {one["id"]: one["pid"] for one in sessions}
        for session in shown.keys() | agents.keys():
            pids, pid = agents.get(session, []), shown.get(session)
            if pids != ([] if pid is None else [pid]):
                wrong.append(f"{session}: agents {pids} live, {pid} is shown")
        events = [one for page in self.pages() for one in page]
        if [one["seq"] for one in events] != list(range(1, len(events) + 1)):
            wrong.append("the event log has gaps")
        twice = [key for key, count in Counter(one["key"] for one in events).items() if count > 1]
        wrong += [f"event {key} is in the log twice" for key in twice]
        text = self.box.home.log.read_text(errors="replace") if self.box.home.log.exists() else ""
        wrong += [f"the daemon's log: {line}" for line in text.splitlines() if any(word in line for word in LOST)]
        changed = self.box.git("status", "--porcelain", "--untracked-files=no")
        wrong += [f"the user's checkout is changed: {changed}"] if changed else []
        places = {one["workspacePath"] for one in sessions if one["workspacePath"]} | {str(self.box.repo)}
        listed = self.box.git("worktree", "list", "--porcelain").splitlines()
        known = {line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")}
        wrong += [f"the worktrees are {sorted(known)}, not {sorted(places)}"] * (known != places)
        links = [path for path in self.box.repo.glob(".worktrees/*") if not path.exists()]
        wrong += [f"links to nowhere are left behind: {links}"] * bool(links)
        locks = [str(path) for path in (self.box.repo / ".git").rglob("*.lock")]
        wrong += [f"locks are left behind: {locks}"] * bool(locks)
        litter = [path.name for path in self.box.home.path.glob("sessions/*/*") if path.name.startswith(LITTER)]
        return wrong + [f"files with secrets or messages are left behind: {litter}"] * bool(litter)

    def pages(self) -> Any:
        """All events, many at a time."""
        last = 0
        while page := self.ask(f"/api/events?after={last}&limit=1000")["events"]:
            yield page
            last = page[-1]["seq"]

    def once(self, session: str, expected: list[str], starts: tuple[int, int] = (1, 0)) -> list[str]:
        """Were exactly these messages heard, each once and in order, and its agent started and resumed so often?"""
        wrong = []
        if self.heard() != expected:
            wrong.append(f"{session} heard {self.heard()}, not {expected}")
        begun = Counter(bool(entry["resume"]) for entry in self.log("start"))
        if (begun[False], begun[True]) != starts:
            wrong.append(f"{session} was started {begun[False]} times and resumed {begun[True]} times, not {starts}")
        bad = [one for one in self.messages(session) if one["state"] not in ("delivered", "acknowledged")]
        return wrong + [f"{session}: message {one['messageId']} is {one['state']}: {one['reason']}" for one in bad]


class Scenario:
    """A story and its end."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime

    def prepare(self, stage: Stage) -> None:
        """The repository, before any daemon runs."""
        stage.box.repository(config=self.config.format(runtime=self.runtime))

    def close(self) -> None:
        """Nothing of it is left."""

    def play(self, stage: Stage) -> None:
        """What the person does, each step when it is time for it."""
        raise NotImplementedError

    def settled(self, stage: Stage) -> bool:
        """Has all that was asked for happened?"""
        raise NotImplementedError

    def wrong(self, stage: Stage) -> list[str]:
        """What is not as it must be in the end."""
        raise NotImplementedError


class Messages(Scenario):
    """A session and three messages; the agent acknowledges what it takes up."""

    said: tuple[str, ...] = ("[[say: one]]", "[[say: two]]", "[[say: three]]")

    def play(self, stage: Stage) -> None:
        stage.ao("new", "[[say: begun]]", "--name", "talk")
        for text in self.said:
            stage.ao("send", "talk", text)

    def settled(self, stage: Stage) -> bool:
        final = [one["state"] in ("acknowledged", "failed") for one in stage.messages("talk")]
        return len(final) >= len(self.said) and all(final) and stage.session("talk")["status"] == "idle"

    def wrong(self, stage: Stage) -> list[str]:
        return stage.once("app-talk", list(self.said))


READER = """\
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


class Typed(Messages):
    """The same with any command line program, to which even its task is typed, and which acknowledges nothing."""

    said = ("one", "two", "three")

    def prepare(self, stage: Stage) -> None:
        program = stage.box.folder / "reader_agent.py"
        program.write_text(READER)
        command = json.dumps([sys.executable, "-I", "-S", str(program)])
        screen = "screen: {ready: '^> $'}"
        log = json.dumps({"READER_LOG": str(stage.truth)})
        agent = f"agents:\n  reader: {{tool: command, command: {command}, prompt: paste, {screen}, env: {log}}}\n"
        stage.box.repository(config=f"defaults: {{agent: reader, runtime: {self.runtime}}}\n{agent}")

    def play(self, stage: Stage) -> None:
        stage.ao("new", "begun", "--name", "talk")
        for text in self.said:
            stage.ao("send", "talk", text)

    def settled(self, stage: Stage) -> bool:
        final = [one["state"] in ("delivered", "failed") for one in stage.messages("talk")]
        return len(final) > len(self.said) and all(final) and len(stage.heard()) > len(self.said)

    def wrong(self, stage: Stage) -> list[str]:
        return stage.once("app-talk", ["begun", *self.said])


class Landing(Scenario):
    """An issue is taken up, a check fails, the agent is told and repairs it, a person approves, it lands."""

    config = (
        "defaults: {{agent: demo, runtime: {runtime}}}\n"
        'ci: {{command: "test ! -e broken.txt"}}\n'
        "reactions:\n"
        '  ci-failed: {{message: "[[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]", backoff: 1s..1s}}\n'
        "  approved-and-green: {{auto: true}}\n"
    )
    task = "[[write: broken.txt|x]] [[write: kept.txt|kept]] [[commit: break]] [[done: broken]]"

    def play(self, stage: Stage) -> None:
        stage.ao("issue", "new", "Mend it", "-m", self.task)
        stage.ao("new", "#1", "--name", "mend")
        stage.until(lambda: stage.session("mend")["status"] == "review_pending", "the check to be mended")
        stage.ao("review", "mend", "--approve")

    def settled(self, stage: Stage) -> bool:
        now = stage.session("mend")
        return now["status"] == "merged" and now["workspacePath"] is None and now["pid"] is None

    def wrong(self, stage: Stage) -> list[str]:
        issues = [(one["title"], one["state"]) for one in stage.ask("/api/issues?all=1&state=all")["issues"]]
        wrong = [] if issues == [("Mend it", "closed")] else [f"the issues are {issues}"]
        wrong += stage.once("app-mend", ["[[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]"])
        return wrong + landed(stage, ["Mend it (#2)"], {"README.md", "kept.txt"})


class Review(Scenario):
    """A reviewer comments on a line; the agent gets it once and answers; a person's word lands it, and takes it back."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"
    task = (
        "Write a\n[[write: a.txt|x]] [[commit: a]] [[done: a]] [[wait]] "
        "[[write: a.txt|y]] [[commit: better]] [[reply: {comment}|better now]] [[done: b]]"
    )

    def play(self, stage: Stage) -> None:
        stage.ao("new", self.task, "--name", "rev")
        stage.until(lambda: stage.session("rev")["status"] == "review_pending", "the pull request to be ready")
        stage.ao("review", "rev", "--comment", "a.txt:1:why x?")
        stage.until(lambda: len(self._comments(stage)) > 1, "the agent's answer")
        stage.until(lambda: stage.session("rev")["activity"] == "idle", "the end of its turn")
        stage.ao("merge", "rev")
        stage.until(lambda: self._gone(stage, "rev"), "the first landing")
        stage.ao("undo", "rev")
        stage.ao("merge", "revert-write-a")

    def _comments(self, stage: Stage) -> list[str]:
        threads = stage.ask("/api/sessions/rev/review")["threads"]
        return [comment["body"] for thread in threads for comment in thread["comments"]]

    def _gone(self, stage: Stage, name: str) -> bool:
        now = stage.session(name)
        return now["status"] == "merged" and now["workspacePath"] is None and now["pid"] is None

    def settled(self, stage: Stage) -> bool:
        return self._gone(stage, "rev") and self._gone(stage, "revert-write-a")

    def wrong(self, stage: Stage) -> list[str]:
        heard, comments = stage.heard(), self._comments(stage)
        wrong = [] if len(heard) == 1 and "why x?" in heard[0] else [f"the comment was heard as {heard}"]
        wrong += [] if comments == ["why x?", "better now"] else [f"the thread is {comments}"]
        text = stage.box.git("show", "main~1:a.txt")
        wrong += [] if text == "y" else [f"what landed is {text!r}"]
        titles = ["Revert Write a (#2)", "Write a (#1)"]
        return wrong + landed(stage, titles, {"README.md"}) + stage.once("app-rev", heard)


class Stacked(Scenario):
    """A change stands on another one; that lands, and the first is put onto the base and lands too."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"

    def play(self, stage: Stage) -> None:
        stage.ao("new", "Low\n[[write: low.txt|low]] [[commit: low]] [[done: low]]", "--name", "low")
        stage.until(lambda: stage.session("low")["status"] == "review_pending", "the one below")
        task = "High\n[[write: high.txt|high]] [[commit: high]] [[done: high]]"
        stage.ao("new", task, "--name", "high", "--after", "low", "--stack")
        stage.until(lambda: stage.session("high")["status"] == "review_pending", "the one above")
        stage.ao("merge", "low")
        stage.until(lambda: self._stands(stage), "the one above to stand on the base")
        stage.until(lambda: stage.session("high")["pr"]["mergeable"] == "yes", "it to be compared")
        stage.ao("merge", "high")

    def _stands(self, stage: Stage) -> bool:
        now = stage.session("high")
        if now["base"] != "main" or now["pr"]["base"] != "main":
            return False
        tip = stage.box.git("rev-parse", now["branch"])
        return tip == now["head"] and stage.box.git("merge-base", "main", tip) == stage.box.git("rev-parse", "main")

    def settled(self, stage: Stage) -> bool:
        now = [stage.session(name) for name in ("low", "high")]
        return all(one["status"] == "merged" and one["workspacePath"] is None and one["pid"] is None for one in now)

    def wrong(self, stage: Stage) -> list[str]:
        wrong = stage.once("app-low", [], starts=(2, 0)) + stage.once("app-high", [], starts=(2, 0))
        return wrong + landed(stage, ["High (#2)", "Low (#1)"], {"README.md", "low.txt", "high.txt"})


def landed(stage: Stage, titles: list[str], files: set[str]) -> list[str]:
    """Are these landings on the base, the last one first, each once and nothing else, and is all of it cleaned up?"""
    git, wrong = stage.box.git, []
    if (there := git("log", "--format=%s", "main").splitlines()) != [*titles, "start"]:
        wrong.append(f"main has {there}")
    if (found := set(git("ls-tree", "--name-only", "main").splitlines())) != files:
        wrong.append(f"main holds {found}, not {files}")
    if (branches := git("branch", "--format=%(refname:short)").split()) != ["main"]:
        wrong.append(f"the branches are {branches}")
    return wrong


RECALLING = """\
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


class Life(Scenario):
    """Stopped with uncommitted work, restored with it and in the same conversation, told something, stopped again."""

    config = "defaults: {{agent: recalling, runtime: {runtime}}}\nplugins: [{{path: ../recalling.py}}]\n"

    def prepare(self, stage: Stage) -> None:
        (stage.box.folder / "recalling.py").write_text(RECALLING)
        super().prepare(stage)

    def play(self, stage: Stage) -> None:
        stage.ao("new", "[[write: draft.txt|unsaved]]", "--name", "life")
        stage.until(lambda: stage.session("life")["status"] == "idle", "the end of its turn")
        stage.ao("stop", "life")
        stage.ao("restore", "life")
        stage.until(lambda: stage.session("life")["status"] == "idle", "it to be back")
        stage.ao("send", "life", "[[edit: draft.txt|more]]")
        stage.until(lambda: stage.messages("life")[-1]["state"] == "acknowledged", "the message to be taken up")
        stage.until(lambda: stage.session("life")["status"] == "idle", "the end of its turn")
        stage.ao("stop", "life")

    def settled(self, stage: Stage) -> bool:
        return bool(stage.session("life")["status"] == "stopped")

    def wrong(self, stage: Stage) -> list[str]:
        now = stage.session("life")
        wrong = stage.once("app-life", ["[[edit: draft.txt|more]]"], starts=(1, 1))
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


class Answers(Scenario):
    """An agent asks for permission twice, then a question; each answer counts for what it was given to."""

    task = "[[block: First?]] [[say: first]] [[block: Second?]] [[say: second]] [[ask: Which?]] [[say: {answer}]]"

    def play(self, stage: Stage) -> None:
        stage.ao("new", self.task, "--name", "ask")
        for question, answer in (("First?", "--allow"), ("Second?", "--deny"), ("Which?", "blue")):
            stage.until(functools.partial(self._asks, stage, question), f"the question {question}")
            stage.ao("answer", "ask", answer)

    def _asks(self, stage: Stage, question: str) -> bool:
        return any(question in one["text"] for one in stage.ask("/api/questions?all=1")["questions"])

    def settled(self, stage: Stage) -> bool:
        return bool(stage.session("ask")["status"] == "idle")

    def wrong(self, stage: Stage) -> list[str]:
        chosen = [(entry["question"], entry["key"]) for entry in stage.log("choice")]
        wrong = [] if chosen == [("First?", "y"), ("Second?", "n")] else [f"the agent was answered {chosen}"]
        stray = [entry["text"] for entry in stage.log("dialog-input")]
        return wrong + [f"typed into the dialog: {stray}"] * bool(stray) + stage.once("app-ask", ["blue"])


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


SCENARIOS: dict[str, Callable[[str], Scenario]] = {
    "messages": Messages,
    "typed": Typed,
    "landing": Landing,
    "review": Review,
    "life": Life,
    "answers": Answers,
    "command": Command,
    "spawn": Spawned,
    "judged": Judged,
    "stacked": Stacked,
}
