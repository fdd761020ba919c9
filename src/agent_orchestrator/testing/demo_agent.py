"""The scripted agent: a program that behaves like a coding agent's terminal interface and does what directives tell it.

It reads its task from `$AO_TASK_FILE`, the first `$AO_DEMO_TASK` characters (or a script from `$AO_DEMO_SCRIPT`), obeys
`[[name: argument]]` in it, reports to `$AO_SPOOL` and takes messages from its terminal, each a turn of its own. docs/agents/demo.md
lists the directives. It runs by itself, on the standard library alone, so that it starts as fast as Python does.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable

DIRECTIVE = re.compile(r"\[\[\s*([a-z]+)\s*(?::((?:(?!\[\[).)*?))?\]\]", re.DOTALL)
OTHERS = re.compile(r"^(?:>|Issue \S+:).*", re.MULTILINE)
"""What others wrote: quoted lines, and an issue's title."""
PASTE_ON, PASTE_OFF = b"\x1b[200~", b"\x1b[201~"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
UNSHOWN = bytes(set(range(32)) - set(b"\t\n")) + b"\x7f"
COMMENT = re.compile(r"\(comment ([^\s()]+)\)")
ESCAPE_DELAY = 0.05
INBOX_DELAY = 0.5
CHATTER = b"the quick brown fox jumps over the lazy dog, again and again and again and again\n"
CHATTER_REPORTS = 10

Step = tuple[str, str]


class Interrupted(Exception):
    """A person pressed Escape or Ctrl-C."""


class Ended(Exception):
    """The program is to end with this exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def append(path: str, record: dict[str, object]) -> None:
    """Append one JSON line with a single write, so that lines of several writers never mix."""
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")
    finally:
        os.close(descriptor)


def report(event: str, **data: object) -> None:
    """Report to the orchestrator."""
    append(os.environ.get("AO_SPOOL", ""), {"event": event, **data})


def record(event: str, **data: object) -> None:
    """Write down for tests what really happened."""
    append(os.environ.get("AO_DEMO_LOG", ""), {"event": event, "pid": os.getpid(), "time": time.time(), **data})


def show(text: str | bytes) -> None:
    """Print to the terminal, at once."""
    left = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError:
        raise Ended(1) from None


def lines_of(path: str) -> list[dict[str, str]]:
    """The JSON objects in a file of lines; none if it is not there."""
    found = []
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this program to start
            for line in file:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
    except OSError:
        return []
    return [line for line in found if isinstance(line, dict)]


def steps_of(text: str) -> list[Step]:
    """What a text says is to be done; of what others wrote in it no command is run."""
    others = [range(*found.span()) for found in OTHERS.finditer(text)]
    found = [(one.start(), one[1], one[2] or "") for one in DIRECTIVE.finditer(text)]
    return [
        ("say", f"not run, for others wrote it: {argument}")
        if name == "sh" and any(start in lines for lines in others)
        else (name, argument)
        for start, name, argument in found
    ]


class Keyboard:
    """Standard input as keys and messages: a terminal in cbreak mode with bracketed paste, or a pipe read by lines."""

    def __init__(self) -> None:
        self.terminal = os.isatty(0)
        self.closed = False
        self.messages: list[str] = []
        self.keys: list[str] = []
        self.dialog = False
        self.editing = False
        self._buffer = b""
        self._since = 0.0
        self._line = b""
        self._pasting = False
        self._restore: Callable[[], None] = lambda: None
        self._signals, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def open(self) -> None:
        """Take keys one by one and ask for pastes in brackets; what was typed before stays."""
        if not self.terminal:
            return
        import termios

        before, settings = termios.tcgetattr(0), termios.tcgetattr(0)
        settings[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
        termios.tcsetattr(0, termios.TCSANOW, settings)
        self._restore = lambda: termios.tcsetattr(0, termios.TCSANOW, before)
        show("\x1b[?2004h")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.terminal:
            try:
                os.write(1, b"\x1b[?2004l\r")
                self._restore()
            except Exception:  # the terminal may be gone, and termios.error is not an OSError
                return

    def poll(self, timeout: float | None) -> None:
        """Read what was typed, waiting for it at most so long; raises `Interrupted`."""
        if self._buffer:
            timeout = ESCAPE_DELAY if timeout is None else min(timeout, ESCAPE_DELAY)
        watched = [self._signals] if self.closed else [0, self._signals]
        ready = select.select(watched, [], [], timeout)[0]
        if self._signals in ready and signal.SIGINT in os.read(self._signals, 4096):
            raise Interrupted
        if 0 in ready:
            self._read()
        self._digest()

    def _read(self) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            self._submit()
        self._buffer += data
        self._since = time.monotonic()

    def _digest(self) -> None:
        while self._buffer:
            if self._pasting:
                text, end, rest = self._buffer.partition(PASTE_OFF)
                if not end:
                    keep = len(PASTE_OFF) - 1
                    text, rest = self._buffer[:-keep], self._buffer[-keep:]
                self._type(text, pasted=True)
                self._buffer, self._pasting = rest, not end
                if not end:
                    return
            elif self._buffer[:1] == b"\x1b":
                if not self._sequence():
                    return
            else:
                byte, self._buffer = self._buffer[:1], self._buffer[1:]
                self._key(byte)

    def _sequence(self) -> bool:
        """Take an escape sequence off the buffer; false: it may not be whole yet."""
        if self._buffer.startswith(PASTE_ON):
            self._buffer = self._buffer[len(PASTE_ON) :]
            self._pasting = True
            return True
        sequence = re.match(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O[@-~])", self._buffer)
        if sequence:
            self._buffer = self._buffer[sequence.end() :]
            return True
        whole = len(self._buffer) > 1 and self._buffer[1:2] not in (b"[", b"O")
        if not whole and time.monotonic() - self._since < ESCAPE_DELAY:
            return False
        self._buffer = self._buffer[1:]
        raise Interrupted

    def _key(self, byte: bytes) -> None:
        if self.dialog:
            self.keys.append(byte.decode(errors="replace"))
        elif byte in (b"\r", b"\n"):
            self._submit()
        elif byte in (b"\x7f", b"\b"):
            self._line = self._line.decode(errors="replace")[:-1].encode()
        elif byte == b"\x15":
            self._line = b""
        elif byte == b"\x04":
            if not self._line:
                self.closed = True
        elif byte == b"\x03":
            raise Interrupted
        elif byte == b"\t" or byte >= b" ":
            self._type(byte, pasted=False)

    def _type(self, text: bytes, *, pasted: bool) -> None:
        if self.dialog:
            if text:
                record("dialog-input", text=text.decode(errors="replace"), pasted=pasted)
            return
        self._line += text
        if self.editing and self.terminal:
            show(text.replace(b"\r", b"\n").translate(None, UNSHOWN))

    def _submit(self) -> None:
        text = self._line.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        self._line = b""
        text = CONTROL.sub("", text).strip()
        if text:
            self.messages.append(text)


class Agent:
    """One run of the program."""

    def __init__(self) -> None:
        self.keyboard = Keyboard()
        self.workspace = os.path.realpath(os.environ.get("AO_WORKSPACE") or os.getcwd())  # noqa: PTH109
        self.task = self._read_task()
        self.answer = ""
        self.comment = ""
        self.child = 0
        self.always: set[str] = set()
        self.inbox = os.environ.get("AO_INBOX", "")
        self.older = {line.get("message") for line in lines_of(self.inbox)}
        acks = lines_of(os.environ.get("AO_SPOOL", ""))
        self.acknowledged = {line.get("message") for line in acks if line.get("event") == "ack"}

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
        """Do the task, then a turn for each message, until standard input ends."""
        self.keyboard.open()
        show(f"demo agent on {os.environ.get('AO_BRANCH') or self.workspace}\n")
        if resume:
            show("resumed: the task is not begun again\n")
        elif self.task:
            self.turn(self.task)
        if resume or not self.task:
            report("activity", state="idle")
        while True:
            message = self.next_message()
            if message is None:
                return
            self.turn(message)

    def turn(self, text: str) -> None:
        """Do what one task or message says; Escape ends it, not us."""
        report("activity", state="active")
        self.note_comment(text)
        try:
            self.perform(steps_of(text) or self.default(text))
        except Interrupted:
            self.end_child()
            show("\n[interrupted]\n")
            record("interrupted")
            report("activity", state="idle", detail="interrupted")
        else:
            report("activity", state="idle")

    def note_comment(self, text: str) -> None:
        """Remember which review comment was named last."""
        self.comment = [self.comment, *COMMENT.findall(text)][-1]

    def default(self, text: str) -> list[Step]:
        """What a text without directives makes us do: note it in a file, and commit that."""
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

    def perform(self, steps: list[Step]) -> None:
        """Do the steps one by one; a denied `block` skips the one after it."""
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

    # -- messages ------------------------------------------------------------------------------------------------------

    def next_message(self) -> str | None:
        """Show the prompt and wait for a message; acknowledge it. None: nobody can send one any more."""
        keyboard = self.keyboard
        keyboard.editing = True
        try:
            show("> ")
            while not keyboard.messages:
                if keyboard.closed:
                    return None
                try:
                    keyboard.poll(None)
                except Interrupted:
                    show("\n> ")
        finally:
            keyboard.editing = False
        show("\n")
        text = keyboard.messages.pop(0)
        self.acknowledge(text)
        return text

    def acknowledge(self, text: str) -> None:
        """Find the message's id in the inbox and report that it was taken up; a person's own typing has none."""
        message = self.id_of(text)
        end = time.monotonic() + INBOX_DELAY
        while message is None and os.path.exists(self.inbox) and time.monotonic() < end:  # noqa: PTH110
            time.sleep(0.02)
            message = self.id_of(text)
        record("message", id=message, text=text)
        if message is not None:
            self.acknowledged.add(message)
            report("ack", message=message)

    def id_of(self, text: str) -> str | None:
        wanted = CONTROL.sub("", text).split()
        same = [
            line["message"]
            for line in lines_of(self.inbox)
            if "message" in line
            and line["message"] not in self.acknowledged
            and CONTROL.sub("", str(line.get("text", ""))).split() == wanted
        ]
        return next((message for message in same if message not in self.older), same[0] if same else None)

    def await_message(self) -> str:
        """A message in the middle of a turn, which then goes on."""
        message = self.next_message()
        if message is None:
            show("nobody can answer\n")
            raise Ended(1)
        report("activity", state="active")
        self.note_comment(message)
        return message

    # -- directives ----------------------------------------------------------------------------------------------------

    def place(self, path: str) -> str:
        """A path in the workspace, and nowhere else."""
        full = os.path.realpath(os.path.join(self.workspace, path.strip()))
        inside = os.path.relpath(full, self.workspace).split("/")
        if inside[0] in ("..", ".") or ".git" in inside:
            raise ValueError(f"{path} is not a file in the workspace")
        os.makedirs(os.path.dirname(full), exist_ok=True)  # noqa: PTH103, PTH120
        return full

    def put(self, argument: str, mode: str) -> None:
        path, _, text = argument.partition("|")
        with open(self.place(path), mode, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write(text.replace("\\n", "\n") + "\n")
        record("wrote", path=path.strip(), text=text)
        show(f"  wrote {path.strip()}\n")

    def do_edit(self, argument: str) -> None:
        self.put(argument, "a")

    def do_write(self, argument: str) -> None:
        self.put(argument, "w")

    def do_say(self, argument: str) -> None:
        show(f"  {argument}\n")

    def do_commit(self, argument: str) -> None:
        commit = ["commit", "-q", "-m", argument or "Work by the demo agent"]
        identity = ["-c", "user.name=Demo agent", "-c", "user.email=demo@localhost.invalid"]
        code = self.start(["git", "add", "-A"]) or self.start(["git", *commit])
        if code == 128:  # Git knows no name for this user
            code = self.start(["git", *identity, *commit])
        if code == 0:
            record("committed", subject=argument)
        show(f"  committed: {argument}\n" if code == 0 else "  nothing was committed\n")

    def do_sh(self, argument: str) -> None:
        show(f"  $ {argument}\n")
        code = self.start(["/bin/sh", "-c", argument])
        if code:
            show(f"  exit {code}\n")

    def start(self, argv: list[str]) -> int:
        """Run a program to its end in a process group of its own, while keys are read."""
        os.chdir(self.workspace)
        null = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # whoever is ended now must know his child
        try:
            self.child = os.posix_spawnp(
                argv[0], argv, os.environ, file_actions=null, setpgroup=0, setsigdef=ends, setsigmask=mask
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        while True:
            pid, status = os.waitpid(self.child, os.WNOHANG)
            if pid:
                self.child = 0
                return os.waitstatus_to_exitcode(status)
            self.keyboard.poll(1.0)  # the child's end wakes it

    def end_child(self) -> None:
        """End what `start` is running: a Git that is asked to removes its locks."""
        child, self.child = self.child, 0
        if child:
            os.killpg(child, signal.SIGTERM)
            until = time.monotonic() + 1.0
            while not os.waitpid(child, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    os.killpg(child, signal.SIGKILL)
                time.sleep(0.005)

    def do_ask(self, argument: str) -> None:
        show(f"{argument}\n")
        report("activity", state="waiting_input", detail=argument)
        report("ask", question=argument)
        self.answer = self.await_message()

    def do_wait(self, argument: str) -> None:
        report("activity", state="idle", **({"detail": argument} if argument else {}))
        self.await_message()

    def do_block(self, argument: str) -> bool:
        if argument in self.always:
            return True
        show(f"{argument} (y/n) ")
        keyboard = self.keyboard
        keyboard.poll(0)  # what was typed before is for the prompt
        keyboard.keys.clear()
        keyboard.dialog = True
        report("activity", state="blocked", detail=argument)
        try:
            key = self.choice()
        finally:
            keyboard.dialog = False
        record("choice", question=argument, key=key)
        show(f"{key}\n")
        if key == "a":
            self.always.add(argument)
        report("activity", state="active")
        return key in "ya"

    def choice(self) -> str:
        while True:
            self.keyboard.poll(None if not self.keyboard.closed else 0)
            while self.keyboard.keys:
                key = self.keyboard.keys.pop(0).lower()
                if key == "\x03":
                    raise Interrupted
                if key in "yna":
                    return key
                record("dialog-input", text=key, pasted=False)
            if self.keyboard.closed:
                return "n"

    def do_progress(self, argument: str) -> None:
        counted = re.fullmatch(r"(\d+)\s*/\s*(\d+)\s*(.*)", argument, re.DOTALL)
        show(f"  [{argument}]\n")
        if counted:
            report("progress", done=int(counted[1]), total=int(counted[2]), step=counted[3])
        else:
            report("progress", step=argument)

    def do_usage(self, argument: str) -> None:
        pairs = dict(pair.partition("=")[::2] for pair in argument.split())
        usage: dict[str, object] = {}
        for key, value in pairs.items():
            usage[key] = value if key == "model" else float(value) if key == "usd" else int(value)
        report("usage", **usage)

    def do_limit(self, argument: str) -> None:
        argument, _, model = argument.partition("model=")
        argument = argument.strip()
        if argument.startswith("+"):
            seconds = time.time() + float(argument[1:].rstrip("s"))
            argument = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
        show(f"usage limit reached; resets at {argument or 'an unknown time'}\n")
        told = {"resets_at": argument, "model": model.strip()}
        report("limit", **{name: value for name, value in told.items() if value})
        self.await_message()

    def do_sleep(self, argument: str) -> None:
        end = time.monotonic() + float(argument)
        while (left := end - time.monotonic()) > 0:
            self.keyboard.poll(left)

    def do_chatter(self, argument: str) -> None:
        """`bytes seconds`: every second a numbered block of so many bytes, written at one go; messages are taken up meanwhile."""
        size, seconds = (float(part) for part in argument.split())
        text = (CHATTER * (1 + int(size) // len(CHATTER)))[: int(size)].rstrip(b"\n") + b"\n"
        begun, blocks, written = time.monotonic(), 0, 0
        try:
            while (now := time.monotonic()) < begun + seconds:
                if now >= begun + blocks:
                    block = b"[chatter %d]\n%b" % (blocks, text)
                    show(block)
                    blocks, written = blocks + 1, written + len(block)
                    if blocks % CHATTER_REPORTS == 0:
                        report("progress", step=f"chatted {blocks} times")
                self.keyboard.poll(max(0.0, min(begun + blocks, begun + seconds) - time.monotonic()))
                while self.keyboard.messages:
                    self.acknowledge(self.keyboard.messages.pop(0))
        finally:
            record("chatter", session=os.environ.get("AO_SESSION", ""), blocks=blocks, bytes=written)

    def do_stuck(self, _argument: str) -> None:
        while True:
            self.keyboard.poll(None)

    def do_done(self, argument: str) -> None:
        show(f"done: {argument}\n")
        report("done", summary=argument)

    def do_reply(self, argument: str) -> None:
        comment, bar, text = argument.partition("|")
        if not bar:
            comment, text = self.comment, argument
        show(f"  replied to {comment.strip() or 'the reviewer'}: {text}\n")
        report("reply", comment=comment.strip(), text=text)

    def do_review(self, argument: str) -> None:
        """`verdict|body|file:line:text|…`"""
        verdict, body, *rest = [*argument.split("|"), ""]
        comments = []
        for each in rest:
            path, _, place = each.partition(":")
            line, _, text = place.partition(":")
            if text:
                comments.append({"path": path.strip(), "line": int(line), "body": text})
        show(f"  judged: {verdict}\n")
        report("review", verdict=verdict.strip(), body=body, comments=comments)

    def do_report(self, argument: str) -> None:
        """`name|key=value …`: something of its own."""
        name, _, pairs = argument.partition("|")
        report(name.strip(), **dict(pair.partition("=")[::2] for pair in pairs.split()))

    def do_mcp(self, argument: str) -> None:
        """`tool {json}`: call a tool of our MCP server, as an agent with a model would."""
        from urllib.request import Request, urlopen

        name, _, arguments = argument.partition(" ")
        call = {"name": name, "arguments": json.loads(arguments or "{}")}
        sent = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
        headers = {
            "Authorization": f"Bearer {os.environ.get('AO_TOKEN', '')}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        }
        request = Request(f"{os.environ.get('AO_URL', '')}/mcp", sent, headers)
        with urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        told = json.loads(lines[-1] if lines else text)
        result = told.get("result") or {}
        said = " ".join(str(part.get("text", "")) for part in result.get("content") or ())
        bad = bool(result.get("isError")) or "error" in told
        self.answer = said or json.dumps(told.get("error") or result)
        record("mcp", tool=name, error=bad, text=self.answer)
        show(f"  {name}{' refused' if bad else ''}: {self.answer[:400]}\n")

    def do_fail(self, argument: str) -> None:
        show(f"error: {argument}\n")
        raise Ended(1)

    def do_exit(self, argument: str) -> None:
        raise Ended(int(argument or 0))

    def do_crash(self, _argument: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _on_wakeup(_signal: int, _frame: object) -> None:
    """Nothing to do here: `Keyboard.poll` is woken and looks."""


def _on_end(number: int, _frame: object) -> None:
    raise Ended(128 + number)


def main() -> int:
    """Run the agent; returns its exit code."""
    resume = "--resume" in sys.argv[1:] or os.environ.get("AO_RESUME") == "1"
    signal.signal(signal.SIGINT, _on_wakeup)
    signal.signal(signal.SIGCHLD, _on_wakeup)
    signal.signal(signal.SIGTERM, _on_end)
    signal.signal(signal.SIGHUP, _on_end)
    record("start", resume=resume, session=os.environ.get("AO_SESSION", ""))
    agent = Agent()
    code = 0
    try:
        agent.run(resume=resume)
    except Ended as end:
        code = end.code
    finally:
        agent.end_child()
        agent.keyboard.close()
    record("end", code=code)
    return code


if __name__ == "__main__":
    sys.exit(main())
