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

from agent_orchestrator.testing.model.anthropic import AnthropicMessages
from agent_orchestrator.testing.model.chat import ChatCompletions
from agent_orchestrator.testing.model.conversation import ModelRequest, build_request
from agent_orchestrator.testing.model.directives import next_reply, side_reply
from agent_orchestrator.testing.model.gemini import GenerateContent
from agent_orchestrator.testing.model.http import AnswerWriter, ModelHttpRequest, ModelHttpServer
from agent_orchestrator.testing.model.log import Arrival, Exchange, ModelTurn, Outcome, arrivals, turns
from agent_orchestrator.testing.model.replies import HttpFailure, ScriptedReply, ToolCall, failure_reply
from agent_orchestrator.testing.model.responses import OpenAIResponses
from agent_orchestrator.testing.model.tools import as_text, bind_action
from agent_orchestrator.testing.model.wire_format import BoundCall, ProviderAnswer, WireFormat

Rule = Callable[[ModelRequest], ScriptedReply | str | None]
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
            server = ModelHttpServer(self._answer)
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
    def requests(self) -> list[ModelRequest]:
        """All requests but side requests."""
        return [exchange.request for exchange in self.exchanges if not exchange.request.is_side_request]

    def arrivals(self, session: str | None = None) -> list[Arrival]:
        """Return the user's messages, each once, in order of arrival."""
        return [arrival for arrival in arrivals(self.exchanges) if session in (None, arrival.session)]

    def count(self, text: str, session: str | None = None) -> int:
        """Return how many messages that contain this text arrived."""
        return sum(text in arrival.text for arrival in self.arrivals(session))

    def turns(self, session: str | None = None) -> list[ModelTurn]:
        """Return the turns of agents as the model sees them."""
        return [turn for turn in turns(self.exchanges) if session in (None, turn.session)]

    def wait_for(self, matches: Callable[[Exchange], bool], timeout: float = 60.0) -> Exchange:
        """Wait for the first exchange that matches and return it; raise `TimeoutError` after `timeout` seconds."""

        def first_match() -> Exchange | None:
            return next((exchange for exchange in self._exchanges if matches(exchange)), None)

        with self._changed:
            exchange = self._changed.wait_for(first_match, timeout)
        if exchange is None:
            summary = [(each.request.last_user_message[:60], each.outcome) for each in self.exchanges]
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

    async def _answer(self, received: ModelHttpRequest, answering: AnswerWriter) -> None:
        path = received.path.partition("?")[0]
        wire = _find_wire_format(path) if received.method == "POST" else None
        if wire is None:
            await self._serve_control_request(received, path, answering)
            return
        try:
            body = json.loads(received.body)
            reading = wire.read(body, path)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            await answering.send_json({"error": {"message": f"not understood: {error!r}"}}, 400)
            return
        exchange = self._begin(
            lambda number: build_request(
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

    def _begin(self, make: Callable[[int], ModelRequest]) -> Exchange:
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

    def _decide(self, request: ModelRequest) -> ScriptedReply:
        if request.is_side_request:
            return side_reply(request)
        try:
            decision = self.rule(request) if self.rule else None
        except Exception as error:
            return failure_reply(500, f"the rule of the scripted model raised {error!r}")
        reply = decision if isinstance(decision, ScriptedReply) else next_reply(request, time.time(), decision)
        bound = [(action, bind_action(action, request)) for action in reply.calls]
        texts = [reply.text, *(as_text(action, request) for action, calls in bound if not calls)]
        calls = tuple(call for _, bound_calls in bound for call in bound_calls)
        return replace(reply, text="\n".join(filter(None, texts)), calls=calls)

    async def _send_reply(self, exchange: Exchange, wire: WireFormat, answering: AnswerWriter) -> None:
        reply, request = exchange.reply, exchange.request
        await asyncio.sleep(reply.wait)
        if reply.hang is not None:
            await self._wait_until_released(exchange, reply.hang)
        if reply.failure is not None and self._still_fails(request, reply.failure):
            error = wire.error(reply.failure, time.time())
            self._end(exchange, "failed")
            await answering.send_json(error.body, error.status, error.headers)
            return
        answer = ProviderAnswer(request.model, reply.text, _bind_calls(reply, request), reply.usage)
        headers = {"request-id": f"req_{answer.id}", "x-request-id": f"req_{answer.id}"}
        if request.is_streamed:
            await self._stream(exchange, wire, answer, answering, headers)
        else:
            self._end(exchange, "answered")
            await answering.send_json(wire.to_object(answer), headers=headers)

    async def _stream(
        self,
        exchange: Exchange,
        wire: WireFormat,
        answer: ProviderAnswer,
        answering: AnswerWriter,
        headers: Mapping[str, str],
    ) -> None:
        reply = exchange.reply
        frames = list(wire.to_stream(answer))
        pause = reply.slow / max(1, sum(frame.text for frame in frames))
        await answering.begin_stream(headers)
        for number, frame in enumerate(frames):
            if number == len(frames) // 2:
                if reply.stall is not None:
                    await self._wait_until_released(exchange, reply.stall)
                if reply.drop:
                    self._end(exchange, "dropped")
                    answering.abort()
                    return
            if frame.text and pause:
                await asyncio.sleep(pause)
            last = number == len(frames) - 1
            if last:
                self._end(exchange, "answered")
            await answering.send_event(frame.data, frame.event, last=last)

    async def _wait_until_released(self, exchange: Exchange, name: str) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.setdefault(name, []).append(waiting)
        with self._changed:
            exchange.held = name
            self._changed.notify_all()
        await waiting
        with self._changed:
            exchange.held = None

    def _still_fails(self, request: ModelRequest, failure: HttpFailure) -> bool:
        key = (request.session, hash(request.entries))
        self._failures[key] += 1
        return failure.times is None or self._failures[key] <= failure.times

    async def _serve_control_request(self, received: ModelHttpRequest, path: str, answering: AnswerWriter) -> None:
        if path.endswith(("/count_tokens", ":countTokens")):
            tokens = len(received.body) // 4
            await answering.send_json({"input_tokens": tokens, "totalTokens": tokens})
        elif path.endswith("/models"):
            data = [{"id": name, "object": "model", "created": 1, "owned_by": "scripted"} for name in _MODELS]
            models = [{"name": f"models/{name}"} for name in _MODELS] if "/v1beta" in path else []
            await answering.send_json({"object": "list", "data": data, "models": models})
        elif path == "/_model/exchanges":
            await answering.send_json([exchange.as_json() for exchange in self.exchanges])
        elif path.startswith("/_model/release") and received.method == "POST":
            self.release(path.removeprefix("/_model/release").strip("/"))
            await answering.send_json({})
        elif received.method == "HEAD":
            await answering.send_headers()
        else:
            await answering.send_json(
                {"error": {"type": "not_found_error", "message": f"{path} is not served here"}}, 404
            )


def _find_wire_format(path: str) -> WireFormat | None:
    if path.endswith("/messages"):
        return AnthropicMessages()
    if path.endswith("/chat/completions"):
        return ChatCompletions()
    if path.endswith("/responses"):
        return OpenAIResponses()
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return GenerateContent()
    return None


def _bind_calls(reply: ScriptedReply, request: ModelRequest) -> tuple[BoundCall, ...]:
    calls = (call for call in reply.calls if isinstance(call, ToolCall))
    return tuple(
        BoundCall(call.name, call.arguments, request.tools[call.name].namespace if call.name in request.tools else "")
        for call in calls
    )
