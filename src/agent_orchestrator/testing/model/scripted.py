"""The scripted model: a server on loopback in its own thread, its log, and its controls."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from agent_orchestrator.testing.model.anthropic import Anthropic
from agent_orchestrator.testing.model.chat import Chat
from agent_orchestrator.testing.model.conversation import Request, request_of
from agent_orchestrator.testing.model.directives import next_reply, side_reply
from agent_orchestrator.testing.model.gemini import Gemini
from agent_orchestrator.testing.model.http import Answering, Received, Server
from agent_orchestrator.testing.model.log import Arrival, Exchange, Outcome, Turn, arrivals, turns
from agent_orchestrator.testing.model.replies import Call, Failure, Reply, fail
from agent_orchestrator.testing.model.responses import Responses
from agent_orchestrator.testing.model.tools import as_text, bind
from agent_orchestrator.testing.model.wire import Answer, BoundCall, Wire

Rule = Callable[[Request], Reply | str | None]
"""Decides an answer: a reply, a script of directives for this message, or None to follow the prompt's directives.
It is called in the server's thread and must not block; side requests of agents do not reach it."""

_MODELS = ("claude-opus-5-5", "claude-sonnet-4-5", "gpt-5", "gpt-5.5", "gemini-2.5-pro")


class ScriptedModel:
    """The server; agents use `model.url` as base URL. Use it with `with` or `async with`."""

    def __init__(self, rule: Rule | None = None, *, port: int = 0, log: Path | None = None) -> None:
        self.rule = rule
        self.url = ""
        self._port = port
        self._log = log
        self._exchanges: list[Exchange] = []
        self._changed = threading.Condition()
        self._failures: Counter[tuple[str, int]] = Counter()
        self._held: dict[str, list[asyncio.Future[None]]] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen and set `url`; raise `OSError` if the port is in use."""
        failed: list[OSError] = []
        listening = threading.Event()

        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            server = Server(self._answer)
            try:
                self.url = f"http://127.0.0.1:{await server.start(self._port)}"
            except OSError as error:
                failed.append(error)
                return
            listening.set()
            await self._stop.wait()
            await server.stop()

        def run() -> None:
            asyncio.run(main())
            listening.set()

        self._thread = threading.Thread(target=run, name="scripted-model", daemon=True)
        self._thread.start()
        listening.wait()
        if failed:
            self._thread.join()
            self._loop = None
            raise failed[0]

    def stop(self) -> None:
        """Stop listening and cut open requests."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._loop = None

    def __enter__(self) -> ScriptedModel:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> ScriptedModel:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # -- log ----------------------------------------------------------------------------------------------------------

    @property
    def exchanges(self) -> list[Exchange]:
        """All requests and answers, side requests too."""
        with self._changed:
            return list(self._exchanges)

    @property
    def requests(self) -> list[Request]:
        """All requests but side requests."""
        return [exchange.request for exchange in self.exchanges if not exchange.request.side]

    def arrivals(self, session: str | None = None) -> list[Arrival]:
        """Return the user's messages, each once, in order of arrival."""
        return [arrival for arrival in arrivals(self.exchanges) if session in (None, arrival.session)]

    def count(self, text: str, session: str | None = None) -> int:
        """Return how many messages that contain this text arrived."""
        return sum(text in arrival.text for arrival in self.arrivals(session))

    def turns(self, session: str | None = None) -> list[Turn]:
        """Return the turns of agents as the model sees them."""
        return [turn for turn in turns(self.exchanges) if session in (None, turn.session)]

    def wait_for(self, matches: Callable[[Exchange], bool], timeout: float = 60.0) -> Exchange:
        """Wait for the first exchange that matches and return it; raise `TimeoutError` after `timeout` seconds."""

        def first_match() -> Exchange | None:
            return next((exchange for exchange in self._exchanges if matches(exchange)), None)

        with self._changed:
            exchange = self._changed.wait_for(first_match, timeout)
        if exchange is None:
            summary = [(each.request.user[:60], each.outcome) for each in self.exchanges]
            raise TimeoutError(f"nothing as wanted came within {timeout:g} s; there was {summary}")
        return exchange

    # -- answers ------------------------------------------------------------------------------------------------------

    def release(self, name: str = "") -> None:
        """Continue the answers that hang or stall under this name."""

        def release_waiting() -> None:
            for waiting in self._held.pop(name, []):
                if not waiting.done():
                    waiting.set_result(None)

        if self._loop is not None:
            self._loop.call_soon_threadsafe(release_waiting)

    async def _answer(self, received: Received, answering: Answering) -> None:
        path = received.path.partition("?")[0]
        wire = _wire(path) if received.method == "POST" else None
        if wire is None:
            await self._other(received, path, answering)
            return
        try:
            body = json.loads(received.body)
            reading = wire.read(body, path)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            await answering.whole({"error": {"message": f"not understood: {error!r}"}}, 400)
            return
        exchange = self._begin(
            lambda number: request_of(
                reading,
                number=number,
                at=time.time(),
                protocol=wire.protocol,
                path=received.path,
                headers=received.headers,
                body=body,
            )
        )
        try:
            await self._send_reply(exchange, wire, answering)
        finally:
            self._end(exchange, "left")

    def _begin(self, make: Callable[[int], Request]) -> Exchange:
        with self._changed:
            request = make(len(self._exchanges) + 1)
            exchange = Exchange(request, self._decide(request))
            self._exchanges.append(exchange)
            self._changed.notify_all()
        return exchange

    def _end(self, exchange: Exchange, outcome: Outcome) -> None:
        """Record the outcome, once; before the last byte is sent, so that a client with the answer finds it in the log."""
        with self._changed:
            if exchange.outcome != "open":
                return
            exchange.outcome, exchange.ended, exchange.held = outcome, time.time(), None
            self._changed.notify_all()
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(json.dumps(exchange.as_json(), ensure_ascii=False) + "\n")

    def _decide(self, request: Request) -> Reply:
        if request.side:
            return side_reply(request)
        try:
            decision = self.rule(request) if self.rule else None
        except Exception as error:
            return fail(500, f"the rule of the scripted model raised {error!r}")
        reply = decision if isinstance(decision, Reply) else next_reply(request, time.time(), decision)
        bound = [(action, bind(action, request)) for action in reply.calls]
        texts = [reply.text, *(as_text(action, request) for action, calls in bound if not calls)]
        calls = tuple(call for _, bound_calls in bound for call in bound_calls)
        return replace(reply, text="\n".join(filter(None, texts)), calls=calls)

    async def _send_reply(self, exchange: Exchange, wire: Wire, answering: Answering) -> None:
        reply, request = exchange.reply, exchange.request
        await asyncio.sleep(reply.wait)
        if reply.hang is not None:
            await self._hold(exchange, reply.hang)
        if reply.failure is not None and self._still_fails(request, reply.failure):
            error = wire.error(reply.failure, time.time())
            self._end(exchange, "failed")
            await answering.whole(error.body, error.status, error.headers)
            return
        answer = Answer(request.model, reply.text, _bound(reply, request), reply.usage)
        headers = {"request-id": f"req_{answer.id}", "x-request-id": f"req_{answer.id}"}
        if request.stream:
            await self._stream(exchange, wire, answer, answering, headers)
        else:
            self._end(exchange, "answered")
            await answering.whole(wire.whole(answer), headers=headers)

    async def _stream(
        self, exchange: Exchange, wire: Wire, answer: Answer, answering: Answering, headers: Mapping[str, str]
    ) -> None:
        reply = exchange.reply
        frames = list(wire.frames(answer))
        pause = reply.slow / max(1, sum(frame.text for frame in frames))
        await answering.begin_stream(headers)
        for number, frame in enumerate(frames):
            if number == len(frames) // 2:
                if reply.stall is not None:
                    await self._hold(exchange, reply.stall)
                if reply.drop:
                    self._end(exchange, "dropped")
                    answering.cut()
                    return
            if frame.text and pause:
                await asyncio.sleep(pause)
            last = number == len(frames) - 1
            if last:
                self._end(exchange, "answered")
            await answering.event(frame.data, frame.event, last=last)

    async def _hold(self, exchange: Exchange, name: str) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.setdefault(name, []).append(waiting)
        with self._changed:
            exchange.held = name
            self._changed.notify_all()
        await waiting
        with self._changed:
            exchange.held = None

    def _still_fails(self, request: Request, failure: Failure) -> bool:
        key = (request.session, hash(request.entries))
        self._failures[key] += 1
        return failure.times is None or self._failures[key] <= failure.times

    async def _other(self, received: Received, path: str, answering: Answering) -> None:
        if path.endswith(("/count_tokens", ":countTokens")):
            tokens = len(received.body) // 4
            await answering.whole({"input_tokens": tokens, "totalTokens": tokens})
        elif path.endswith("/models"):
            data = [{"id": name, "object": "model", "created": 1, "owned_by": "scripted"} for name in _MODELS]
            models = [{"name": f"models/{name}"} for name in _MODELS] if "/v1beta" in path else []
            await answering.whole({"object": "list", "data": data, "models": models})
        elif path == "/_model/exchanges":
            await answering.whole([exchange.as_json() for exchange in self.exchanges])
        elif path.startswith("/_model/release") and received.method == "POST":
            self.release(path.removeprefix("/_model/release").strip("/"))
            await answering.whole({})
        elif received.method == "HEAD":
            await answering.empty()
        else:
            await answering.whole({"error": {"type": "not_found_error", "message": f"{path} is not served here"}}, 404)


def _wire(path: str) -> Wire | None:
    if path.endswith("/messages"):
        return Anthropic()
    if path.endswith("/chat/completions"):
        return Chat()
    if path.endswith("/responses"):
        return Responses()
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return Gemini()
    return None


def _bound(reply: Reply, request: Request) -> tuple[BoundCall, ...]:
    calls = (call for call in reply.calls if isinstance(call, Call))
    return tuple(
        BoundCall(call.name, call.arguments, request.tools[call.name].namespace if call.name in request.tools else "")
        for call in calls
    )
