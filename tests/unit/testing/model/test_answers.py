"""Responses of the scripted model in all four wire formats."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead

import pytest

from agent_orchestrator.testing.model import (
    JsonAction,
    ModelRequest,
    ScriptedModel,
    ScriptedReply,
    ShellAction,
    as_argument,
    failure_reply,
    text_reply,
    usage_limit_reply,
)
from tests.unit.testing.model.wire import PROTOCOLS, SHELL, SHELL_SCHEMA, ask


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_text_tool_calls_and_usage_are_returned(model: ScriptedModel, protocol: str, stream: bool) -> None:
    prompt = (
        "Do it. [[say: I look.]] [[sh: ls -l]] [[usage: input=10 output=7 read=20 written=3]] [[say: It is «done».]]"
    )
    first = ask(model.url, protocol, prompt, stream=stream)
    assert (first.text, first.calls) == ("I look.", (("bash", {"command": "ls -l"}),))
    assert first.usage == (1500, 300, 50)

    talk = [("user", prompt), ("call", "bash"), ("result", "total 0")]
    second = ask(model.url, protocol, talk, stream=stream)
    assert (second.text, second.calls, second.usage) == ("It is «done».", (), (33, 20, 7))

    request = model.requests[-1]
    assert (request.last_user_message, request.is_streamed, request.protocol) == (prompt, stream, protocol)
    assert "total 0" in request.tool_results[0]
    assert model.exchanges[-1].outcome == "answered"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_next_message_gets_its_own_answer(model: ScriptedModel, protocol: str) -> None:
    talk = [("user", "[[sh: true]]"), ("call", "bash"), ("result", ""), ("assistant", "Done."), ("user", "and now?")]
    assert ask(model.url, protocol, talk).text == "Understood: and now?"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_during_a_turn_does_not_stop_the_script(model: ScriptedModel, protocol: str) -> None:
    work = [("user", "[[sh: one]] [[sh: two]] [[say: end]]"), ("call", "bash"), ("result", "")]
    assert ask(model.url, protocol, [*work, ("user", "hurry up")]).calls == (("bash", {"command": "two"}),)
    assert ask(model.url, protocol, [*work, ("user", "no: [[say: other]]")]).text == "other"
    interrupted = [*work, ("user", "[Request interrupted by user for tool use]"), ("user", "hello")]
    assert ask(model.url, protocol, interrupted).text == "Understood: hello"


@pytest.mark.parametrize(
    ("protocol", "status", "kind"),
    [
        ("anthropic", 429, "rate_limit_error"),
        ("anthropic", 500, "api_error"),
        ("anthropic", 529, "overloaded_error"),
        ("chat", 429, "requests"),
        ("chat", 500, "server_error"),
        ("responses", 401, "invalid_request_error"),
        ("gemini", 429, "RESOURCE_EXHAUSTED"),
        ("gemini", 503, "UNAVAILABLE"),
    ],
)
def test_errors_have_the_format_of_their_provider(model: ScriptedModel, protocol: str, status: int, kind: str) -> None:
    for _ in range(3):
        got = ask(model.url, protocol, f"[[error: {status}]] [[say: never]]")
        assert (got.status, got.error.get("status") or got.error["type"]) == (status, kind)
    assert [exchange.outcome for exchange in model.exchanges] == ["failed"] * 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_error_can_be_temporary(model: ScriptedModel, protocol: str) -> None:
    prompt = "[[error: 529 x2 retry=1.5]] [[say: here]]"
    got = [ask(model.url, protocol, prompt) for _ in range(3)]
    assert [answer.status for answer in got] == [529, 529, 200]
    assert got[0].headers["retry-after"] == "1.5"
    assert got[2].text == "here"
    assert ask(model.url, protocol, "another: " + prompt).status == 529


def test_the_usage_limit_of_anthropic_names_its_reset_time(model: ScriptedModel) -> None:
    got = ask(model.url, "anthropic", "[[limit: 3600]]")
    assert got.status == 429
    assert got.headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert abs(int(got.headers["anthropic-ratelimit-unified-reset"]) - time.time() - 3600) < 5
    assert got.headers["anthropic-ratelimit-unified-representative-claim"] == "five_hour"


def test_the_usage_limit_of_openai_names_its_reset_time(model: ScriptedModel) -> None:
    got = ask(model.url, "responses", "[[limit: 3600]]")
    assert (got.status, got.error["type"]) == (429, "usage_limit_reached")
    assert abs(got.error["resets_at"] - time.time() - 3600) < 5
    assert 3590 <= got.error["resets_in_seconds"] <= 3600


def test_the_usage_limit_of_gemini_names_its_retry_delay(model: ScriptedModel) -> None:
    got = ask(model.url, "gemini", "[[limit: 60 x1]] [[say: again]]")
    kinds = {detail["@type"].rpartition(".")[2]: detail for detail in got.error["details"]}
    assert kinds["RetryInfo"]["retryDelay"] == "60s"
    assert "QuotaFailure" in kinds
    assert ask(model.url, "gemini", "[[limit: 60 x1]] [[say: again]]").text == "again"


@pytest.mark.parametrize("directive", ["hang", "stall"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_held_response_waits_until_it_is_released(model: ScriptedModel, protocol: str, directive: str) -> None:
    with ThreadPoolExecutor() as pool:
        response = pool.submit(ask, model.url, protocol, f"[[{directive}: door]] [[say: I am out]]")
        held = model.wait_for(lambda exchange: exchange.held == "door")
        model.release("window")
        assert not response.done()
        assert model.turns()[0].ended is None
        model.release("door")
        assert response.result().text == "I am out"
    assert (held.outcome, held.held) == ("answered", None)


def test_responses_can_be_delayed_and_slow(model: ScriptedModel) -> None:
    began = time.monotonic()
    request = urllib.request.Request(
        model.url + "/v1/messages",
        json.dumps(
            {"stream": True, "messages": [{"role": "user", "content": "[[wait: 0.2]] [[slow: 0.3]] [[say: a b c]]"}]}
        ).encode(),
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert time.monotonic() - began >= 0.2
        first = answer.readline()
        answer.read()
    assert first.startswith(b"event: message_start")
    assert time.monotonic() - began >= 0.35


def test_a_connection_can_be_cut_in_the_middle_of_a_response(model: ScriptedModel) -> None:
    body = {"stream": True, "messages": [{"role": "user", "content": "[[drop]] [[say: a b c d e f]]"}]}
    request = urllib.request.Request(model.url + "/v1/messages", json.dumps(body).encode())
    with pytest.raises(IncompleteRead) as cut, urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    assert b"message_start" in cut.value.partial
    assert b"message_stop" not in cut.value.partial
    assert model.wait_for(lambda exchange: exchange.outcome == "dropped")


def test_an_agent_that_disconnects_is_noticed(model: ScriptedModel) -> None:
    with pytest.raises(TimeoutError):
        ask(model.url, "chat", "[[hang]]", timeout=0.2)
    abandoned = model.wait_for(lambda exchange: exchange.outcome == "left")
    assert abandoned.ended is not None


def test_a_rule_has_precedence_over_directives(model: ScriptedModel) -> None:
    def rule(request: ModelRequest) -> ScriptedReply | str | None:
        if "rule" not in request.last_user_message:
            return None
        if request.tool_results:
            return text_reply("The tool said " + request.tool_results[-1])
        return (
            ScriptedReply("Looking.", calls=(ShellAction("pwd"),))
            if "reply" in request.last_user_message
            else "[[sh: make]] [[say: made]]"
        )

    model.rule = rule
    assert ask(model.url, "chat", "rule: reply").calls == (("bash", {"command": "pwd"}),)
    talk = [("user", "rule: reply"), ("call", "bash"), ("result", "/tmp")]
    assert ask(model.url, "chat", talk).text == "The tool said /tmp"
    assert ask(model.url, "chat", "rule: script").calls == (("bash", {"command": "make"}),)
    assert ask(model.url, "chat", "[[say: own]]").text == "own"
    model.rule = lambda _: failure_reply(529)
    assert ask(model.url, "chat", "[[say: own]]").status == 529
    model.rule = lambda _: usage_limit_reply(time.time() + 60)
    assert ask(model.url, "chat", "[[say: own]]").error["type"] == "usage_limit_reached"
    model.rule = lambda _: 1 / 0  # type: ignore[assignment,return-value]
    assert "ZeroDivisionError" in ask(model.url, "chat", "[[say: own]]").error["message"]


def test_an_invalid_directive_is_reported(model: ScriptedModel) -> None:
    assert ask(model.url, "chat", "[[wait: soon]]").text.startswith("Not understood: [[wait: soon]]")
    assert ask(model.url, "chat", "[[tool: bash {]]").text.startswith("Not understood: [[tool: bash {]]")


def test_side_requests_of_an_agent_run_no_directives(model: ScriptedModel) -> None:
    title = ask(model.url, "chat", [("system", "You are a title generator."), ("user", "[[sh: ls]]")], tools={})
    assert (title.text, title.calls) == ("Scripted change", ())
    schema = {"type": "object", "properties": {"title": {"type": "string"}, "new": {"type": "boolean"}}}
    output_format = {"format": {"type": "json_schema", "schema": schema}}
    got = ask(model.url, "anthropic", "[[sh: ls]]", tools={}, extra={"output_config": output_format})
    assert json.loads(got.text) == {"title": "scripted title", "new": False}
    config = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    assert json.loads(ask(model.url, "gemini", "[[sh: ls]]", extra={"generationConfig": config}).text)["new"] is False
    assert model.requests == []
    assert all(exchange.request.is_side_request for exchange in model.exchanges)


def test_many_responses_can_be_streamed_at_once(model: ScriptedModel) -> None:
    """Twenty responses that wait for each other: each begins before any is finished."""
    with ThreadPoolExecutor(20) as pool:
        prompts = [f"[[stall]] [[say: this is answer {number}]]" for number in range(20)]
        responses = [pool.submit(ask, model.url, PROTOCOLS[n % 4], prompt) for n, prompt in enumerate(prompts)]
        model.wait_for(lambda _: sum(exchange.held is not None for exchange in model.exchanges) == 20)
        model.release()
        assert [answer.result().text for answer in responses] == [f"this is answer {number}" for number in range(20)]


def test_the_other_endpoints_are_served(model: ScriptedModel) -> None:
    def get(path: str, method: str = "GET", data: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(model.url + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    assert json.loads(get("/v1/messages/count_tokens", "POST", b'{"messages": []}')[1])["input_tokens"] > 0
    assert json.loads(get("/v1beta/models/m:countTokens", "POST", b'{"contents": []}')[1])["totalTokens"] > 0
    assert json.loads(get("/v1/models")[1])["data"]
    assert get("/", "HEAD") == (200, b"")
    assert get("/v1/nothing")[0] == 404
    assert get("/v1/messages", "POST", b"{")[0] == 400
    assert get("/v1/messages", "POST", b"[]")[0] == 400
    ask(model.url, "chat", "[[say: hi]]")
    assert json.loads(get("/_model/exchanges")[1])[0]["users"] == ["[[say: hi]]"]


def test_a_request_may_be_chunked(model: ScriptedModel) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "[[say: «whole»]]"}]}).encode()
    halves = iter([body[:20], body[20:]])
    request = urllib.request.Request(
        model.url + "/v1/messages", halves, {"transfer-encoding": "chunked", "content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.loads(answer.read())["content"][0]["text"] == "«whole»"


def test_the_server_can_be_closed_with_open_requests() -> None:
    with ThreadPoolExecutor() as pool:
        with ScriptedModel() as model:
            response = pool.submit(ask, model.url, "chat", "[[hang]]")
            model.wait_for(lambda exchange: exchange.held is not None)
        with pytest.raises(OSError):
            response.result(60)


@pytest.mark.anyio
async def test_the_model_works_in_async_tests() -> None:
    async with ScriptedModel() as model:
        assert model.url.startswith("http://127.0.0.1:")


def test_a_used_port_is_an_error(model: ScriptedModel) -> None:
    with pytest.raises(OSError), ScriptedModel(port=int(model.url.rpartition(":")[2])):
        pass


def test_tools_with_free_text_input_get_text(model: ScriptedModel) -> None:
    tool = {"type": "custom", "name": "exec", "description": "Run JavaScript"}
    more = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "namespace", "name": "functions", "tools": [tool]}],
    }
    message = {"type": "message", "role": "user", "content": "[[sh: echo 'a \"b\"']]"}
    got = ask(model.url, "responses", "", tools={}, extra={"input": [more, message]})
    ((name, code),) = got.calls
    assert name == "exec"
    assert json.dumps("echo 'a \"b\"'") in code


def test_required_arguments_of_a_tool_are_filled_in(model: ScriptedModel) -> None:
    schema = {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}},
            "description": {"type": "string"},
            "mode": {"type": "string", "enum": ["sync", "async"]},
            "wait": {"type": ["number", "null"]},
            "quiet": {"type": "boolean"},
        },
        "required": ["command", "description", "mode", "wait"],
    }
    ((_, arguments),) = ask(model.url, "chat", "[[sh: ls]]", tools={"bash": schema}).calls
    assert arguments == {"command": ["bash", "-lc", "ls"], "description": "scripted", "mode": "sync", "wait": 1}


def test_any_tool_can_be_called(model: ScriptedModel) -> None:
    tools = {**SHELL, "Ask": SHELL_SCHEMA}
    got = ask(model.url, "anthropic", '[[tool: Ask {"question": "Which [one]?"}]]', tools=tools)
    assert got.calls == (("Ask", {"question": "Which [one]?"}),)


PLAN = {"tasks": [{"id": "a", "after": [], "say": '[[say: "later"]]'}], "grid": [[[1], []]]}


def test_structured_output_uses_the_agents_tool_for_it(model: ScriptedModel) -> None:
    tools = {**SHELL, "StructuredOutput": {"type": "object"}}
    prompt = f"Plan. [[usage: input=1 output=2 read=0 written=0]] [[json: {as_argument(PLAN)}]]"
    got = ask(model.url, "anthropic", prompt, tools=tools)
    assert (got.text, got.calls, got.usage) == ("", (("StructuredOutput", PLAN),), (1, 0, 2))
    talk = [("user", prompt), ("call", "StructuredOutput"), ("result", "Structured output provided successfully")]
    assert (ask(model.url, "anthropic", talk, tools=tools).text, model.exchanges[-1].ends_turn) == ("Done.", True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_structured_output_without_a_tool_is_text(model: ScriptedModel, protocol: str) -> None:
    got = ask(model.url, protocol, f"[[sh: ls]] [[json: {as_argument(PLAN)}]]")
    assert got.calls == (("bash", {"command": "ls"}),), "what comes before it is done before"
    assert json.loads(ask(model.url, protocol, f"[[json: {as_argument(PLAN)}]]").text) == PLAN
    model.rule = lambda _: ScriptedReply(calls=(JsonAction(PLAN),))
    assert json.loads(ask(model.url, protocol, "Plan.").text) == PLAN


def test_a_turn_with_a_json_schema_is_no_side_request(model: ScriptedModel) -> None:
    shape = {"text": {"format": {"type": "json_schema", "name": "plan", "schema": {"type": "object"}}}}
    got = ask(model.url, "responses", f"[[json: {as_argument(PLAN)}]]", extra=shape)
    assert (json.loads(got.text), model.requests[0].is_side_request) == (PLAN, False)
    assert model.requests[0].json_schema == {"type": "object"}


def test_json_in_a_directive_contains_no_brackets_of_directives() -> None:
    text = as_argument(PLAN)
    assert json.loads(text) == PLAN
    assert "[[" not in text and "]]" not in text
