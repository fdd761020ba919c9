"""The turns of the scripted agent: its task, its messages, and the programs that it runs."""

from __future__ import annotations

import os
import re
import signal
import time

from .keyboard import CONTROL, Interrupted, Keyboard
from .output import ProgramExit, read_json_lines, record, report, show

DIRECTIVE = re.compile(r"\[\[\s*([a-z]+)\s*(?::((?:(?!\[\[).)*?))?\]\]", re.DOTALL)
OTHER_PEOPLES_TEXT = re.compile(r"^(?:>|Issue \S+:).*", re.MULTILINE)
"""Text by other people: quoted lines, and the title of an issue."""
COMMENT_MENTION = re.compile(r"\(comment ([^\s()]+)\)")
INBOX_DELAY = 0.5

Step = tuple[str, str]


def parse_steps(text: str) -> list[Step]:
    """Return the directives in a text; `sh` directives in text by other people become a `say`."""
    others = [range(*match.span()) for match in OTHER_PEOPLES_TEXT.finditer(text)]
    match = [(match.start(), match[1], match[2] or "") for match in DIRECTIVE.finditer(text)]
    return [
        ("say", f"not run, for others wrote it: {argument}")
        if name == "sh" and any(start in lines for lines in others)
        else (name, argument)
        for start, name, argument in match
    ]


class ScriptedAgent:
    """One run of the program; `directives.py` adds a method per directive, `do_NAME`."""

    def __init__(self) -> None:
        self.keyboard = Keyboard()
        self.workspace = os.path.realpath(os.environ.get("AO_WORKSPACE") or os.getcwd())  # noqa: PTH109
        self.task = self._read_task()
        self.answer = ""
        self.comment = ""
        self.child_pid = 0
        self.always_allowed: set[str] = set()
        self.inbox = os.environ.get("AO_INBOX", "")
        self.older_message_ids = {line.get("message") for line in read_json_lines(self.inbox)}
        acks = read_json_lines(os.environ.get("AO_SPOOL", ""))
        self.acknowledged_ids = {line.get("message") for line in acks if line.get("event") == "ack"}

    def _read_task(self) -> str:
        script = os.environ.get("AO_DEMO_SCRIPT")
        if script:
            return script
        try:
            with open(os.environ.get("AO_TASK_FILE", ""), encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                return file.read(int(os.environ.get("AO_DEMO_TASK", -1))).strip()
        except OSError:
            return ""

    def run(self, *, resume: bool) -> None:
        """Do the task, then one turn per message, until standard input ends."""
        self.keyboard.open()
        show(f"demo agent on {os.environ.get('AO_BRANCH') or self.workspace}\n")
        if resume:
            show("resumed: the task is not begun again\n")
        elif self.task:
            self.run_turn(self.task)
        if resume or not self.task:
            report("activity", state="idle")
        while True:
            message = self.next_message()
            if message is None:
                return
            self.run_turn(message)

    def run_turn(self, text: str) -> None:
        """Do one task or message; Escape ends the turn but not the program."""
        report("activity", state="active")
        self.remember_comment(text)
        try:
            self.run_steps(parse_steps(text) or self.default_steps(text))
        except Interrupted:
            self.end_child()
            show("\n[interrupted]\n")
            record("interrupted")
            report("activity", state="idle", detail="interrupted")
        else:
            report("activity", state="idle")

    def remember_comment(self, text: str) -> None:
        """Remember the last review comment that a text names."""
        self.comment = [self.comment, *COMMENT_MENTION.findall(text)][-1]

    def default_steps(self, text: str) -> list[Step]:
        """Return the steps for a text without directives: write it to a file and commit that."""
        if os.environ.get("AO_DEMO_READS") == "1":
            return [("say", "understood")]
        title = next((line.strip() for line in text.splitlines() if line.strip()), "note")
        first = next((line for line in (self.task or text).splitlines() if line.strip()), "note")
        slug = re.sub(r"[^a-z0-9]+", "-", first.lower()).strip("-")[:40].strip("-") or "note"
        return [
            ("progress", "1/3 reading the task"),
            ("edit", f"notes/{slug}.md|{text}"),
            ("progress", "2/3 committing"),
            ("commit", f"Note: {title[:60]}"),
            ("progress", "3/3 finished"),
            ("done", f"noted in notes/{slug}.md"),
        ]

    def run_steps(self, steps: list[Step]) -> None:
        """Run the steps in order; a denied `block` skips the step after it."""
        skip = False
        for name, raw in steps:
            step = getattr(self, f"do_{name}", None)
            argument = raw.strip()
            if name != "sh":
                argument = argument.replace("{answer}", self.answer).replace("{comment}", self.comment)
            if skip:
                show(f"  skipped: {name}\n")
                skip = False
            elif step is None:
                show(f"  there is no directive [[{name}]]\n")
            else:
                try:
                    skip = step(argument) is False
                except (OSError, ValueError) as error:
                    show(f"  {name} failed: {error}\n")

    def next_message(self) -> str | None:
        """Show the prompt, wait for a message and acknowledge it; return None when standard input has ended."""
        keyboard = self.keyboard
        keyboard.is_editing = True
        try:
            show("> ")
            while not keyboard.messages:
                if keyboard.is_closed:
                    return None
                try:
                    keyboard.poll(None)
                except Interrupted:
                    show("\n> ")
        finally:
            keyboard.is_editing = False
        show("\n")
        text = keyboard.messages.pop(0)
        self.acknowledge(text)
        return text

    def acknowledge(self, text: str) -> None:
        """Find the message's id in the inbox and report it as received; text typed by a person has none."""
        message = self.find_message_id(text)
        end = time.monotonic() + INBOX_DELAY
        while message is None and os.path.exists(self.inbox) and time.monotonic() < end:  # noqa: PTH110
            time.sleep(0.02)
            message = self.find_message_id(text)
        record("message", id=message, text=text)
        if message is not None:
            self.acknowledged_ids.add(message)
            report("ack", message=message)

    def find_message_id(self, text: str) -> str | None:
        """Return the id of the inbox message with this text, an unacknowledged new one if possible, or None."""
        words = CONTROL.sub("", text).split()
        candidates = [
            line["message"]
            for line in read_json_lines(self.inbox)
            if "message" in line
            and line["message"] not in self.acknowledged_ids
            and CONTROL.sub("", str(line.get("text", ""))).split() == words
        ]
        return next(
            (message for message in candidates if message not in self.older_message_ids),
            candidates[0] if candidates else None,
        )

    def await_message(self) -> str:
        """Wait for a message in the middle of a turn and return it; raise `ProgramExit` if none can arrive."""
        message = self.next_message()
        if message is None:
            show("nobody can answer\n")
            raise ProgramExit(1)
        report("activity", state="active")
        self.remember_comment(message)
        return message

    def run_program(self, argv: list[str]) -> int:
        """Run a program to its end in its own process group while keys are read; return its exit code."""
        os.chdir(self.workspace)
        null = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # a signal now would leave the child unknown
        try:
            self.child_pid = os.posix_spawnp(
                argv[0], argv, os.environ, file_actions=null, setpgroup=0, setsigdef=ends, setsigmask=mask
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        while True:
            pid, status = os.waitpid(self.child_pid, os.WNOHANG)
            if pid:
                self.child_pid = 0
                return os.waitstatus_to_exitcode(status)
            self.keyboard.poll(1.0)  # the child's end wakes it

    def end_child(self) -> None:
        """End the program that `start` runs, first with SIGTERM so that Git removes its locks."""
        child, self.child_pid = self.child_pid, 0
        if child:
            os.killpg(child, signal.SIGTERM)
            until = time.monotonic() + 1.0
            while not os.waitpid(child, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    os.killpg(child, signal.SIGKILL)
                time.sleep(0.005)
