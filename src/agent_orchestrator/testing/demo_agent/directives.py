"""The directives that the scripted agent obeys: `[[name: argument]]` calls `do_name` with the argument."""

from __future__ import annotations

import json
import os
import re
import signal
import time

from .agent import ScriptedAgent
from .keyboard import Interrupted
from .output import ProgramExit, record, report, show

CHATTER = b"the quick brown fox jumps over the lazy dog, again and again and again and again\n"
CHATTER_REPORTS = 10


class DirectedAgent(ScriptedAgent):
    """An agent with a method per directive; if a method returns False, the next step is skipped."""

    def workspace_path(self, path: str) -> str:
        """Return the full path of a file in the workspace, creating its folder; raise `ValueError` if it is outside."""
        path_in_workspace = os.path.realpath(os.path.join(self.workspace, path.strip()))
        parts = os.path.relpath(path_in_workspace, self.workspace).split("/")
        if parts[0] in ("..", ".") or ".git" in parts:
            raise ValueError(f"{path} is not a file in the workspace")
        os.makedirs(os.path.dirname(path_in_workspace), exist_ok=True)  # noqa: PTH103, PTH120
        return path_in_workspace

    def write_file(self, argument: str, mode: str) -> None:
        path, _, text = argument.partition("|")
        with open(self.workspace_path(path), mode, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write(text.replace("\\n", "\n") + "\n")
        record("wrote", path=path.strip(), text=text)
        show(f"  wrote {path.strip()}\n")

    def do_edit(self, argument: str) -> None:
        self.write_file(argument, "a")

    def do_write(self, argument: str) -> None:
        self.write_file(argument, "w")

    def do_say(self, argument: str) -> None:
        show(f"  {argument}\n")

    def do_commit(self, argument: str) -> None:
        commit = ["commit", "-q", "-m", argument or "Work by the demo agent"]
        identity = ["-c", "user.name=Demo agent", "-c", "user.email=demo@localhost.invalid"]
        code = self.run_program(["git", "add", "-A"]) or self.run_program(["git", *commit])
        if code == 128:  # Git knows no name for this user
            code = self.run_program(["git", *identity, *commit])
        if code == 0:
            record("committed", subject=argument)
        show(f"  committed: {argument}\n" if code == 0 else "  nothing was committed\n")

    def do_sh(self, argument: str) -> None:
        show(f"  $ {argument}\n")
        code = self.run_program(["/bin/sh", "-c", argument])
        if code:
            show(f"  exit {code}\n")

    def do_ask(self, argument: str) -> None:
        show(f"{argument}\n")
        report("activity", state="waiting_input", detail=argument)
        report("ask", question=argument)
        self.answer = self.await_message()

    def do_wait(self, argument: str) -> None:
        report("activity", state="idle", **({"detail": argument} if argument else {}))
        self.await_message()

    def do_block(self, argument: str) -> bool:
        if argument in self.always_allowed:
            return True
        show(f"{argument} (y/n) ")
        keyboard = self.keyboard
        keyboard.poll(0)  # what was typed before is for the prompt
        keyboard.keys.clear()
        keyboard.is_in_dialog = True
        report("activity", state="blocked", detail=argument)
        try:
            key = self.read_decision()
        finally:
            keyboard.is_in_dialog = False
        record("choice", question=argument, key=key)
        show(f"{key}\n")
        if key == "a":
            self.always_allowed.add(argument)
        report("activity", state="active")
        return key in "ya"

    def read_decision(self) -> str:
        while True:
            self.keyboard.poll(None if not self.keyboard.is_closed else 0)
            while self.keyboard.keys:
                key = self.keyboard.keys.pop(0).lower()
                if key == "\x03":
                    raise Interrupted
                if key in "yna":
                    return key
                record("dialog-input", text=key, pasted=False)
            if self.keyboard.is_closed:
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
        limit = {"resets_at": argument, "model": model.strip()}
        report("limit", **{name: value for name, value in limit.items() if value})
        self.await_message()

    def do_sleep(self, argument: str) -> None:
        end = time.monotonic() + float(argument)
        while (remaining := end - time.monotonic()) > 0:
            self.keyboard.poll(remaining)

    def do_chatter(self, argument: str) -> None:
        """`bytes seconds`: write a numbered block of that size every second, in a single write, and acknowledge messages meanwhile."""
        size, seconds = (float(part) for part in argument.split())
        text = (CHATTER * (1 + int(size) // len(CHATTER)))[: int(size)].rstrip(b"\n") + b"\n"
        started, blocks, written = time.monotonic(), 0, 0
        try:
            while (now := time.monotonic()) < started + seconds:
                if now >= started + blocks:
                    block = b"[chatter %d]\n%b" % (blocks, text)
                    show(block)
                    blocks, written = blocks + 1, written + len(block)
                    if blocks % CHATTER_REPORTS == 0:
                        report("progress", step=f"chatted {blocks} times")
                self.keyboard.poll(max(0.0, min(started + blocks, started + seconds) - time.monotonic()))
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
        """`verdict|body|file:line:text|…`: report a review."""
        verdict, body, *comment_texts = [*argument.split("|"), ""]
        comments = []
        for comment_text in comment_texts:
            path, _, position = comment_text.partition(":")
            line, _, text = position.partition(":")
            if text:
                comments.append({"path": path.strip(), "line": int(line), "body": text})
        show(f"  judged: {verdict}\n")
        report("review", verdict=verdict.strip(), body=body, comments=comments)

    def do_report(self, argument: str) -> None:
        """`name|key=value …`: report a custom event."""
        name, _, pairs = argument.partition("|")
        report(name.strip(), **dict(pair.partition("=")[::2] for pair in pairs.split()))

    def do_mcp(self, argument: str) -> None:
        """`tool {json}`: call a tool of the orchestrator's MCP server, as an agent with a model would."""
        from urllib.request import Request, urlopen

        name, _, arguments = argument.partition(" ")
        call = {"name": name, "arguments": json.loads(arguments or "{}")}
        payload = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
        headers = {
            "Authorization": f"Bearer {os.environ.get('AO_TOKEN', '')}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        }
        request = Request(f"{os.environ.get('AO_URL', '')}/mcp", payload, headers)
        with urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        response = json.loads(lines[-1] if lines else text)
        result = response.get("result") or {}
        result_text = " ".join(str(part.get("text", "")) for part in result.get("content") or ())
        failed = bool(result.get("isError")) or "error" in response
        self.answer = result_text or json.dumps(response.get("error") or result)
        record("mcp", tool=name, error=failed, text=self.answer)
        show(f"  {name}{' refused' if failed else ''}: {self.answer[:400]}\n")

    def do_fail(self, argument: str) -> None:
        show(f"error: {argument}\n")
        raise ProgramExit(1)

    def do_exit(self, argument: str) -> None:
        raise ProgramExit(int(argument or 0))

    def do_crash(self, _argument: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
