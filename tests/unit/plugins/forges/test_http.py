"""The HTTP client with a misbehaving server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary
from agent_orchestrator.plugins.forges.shared import http
from agent_orchestrator.plugins.forges.shared.http import MAX_ATTEMPTS, ForgeHttpClient, next_page
from agent_orchestrator.plugins.forges.shared.response_errors import HostText
from agent_orchestrator.protocols.forge import MAX_FORGE_TEXT_LENGTH

pytestmark = pytest.mark.anyio

Reply = tuple[int, dict[str, str], bytes]
Answering = Callable[["ReceivedRequest"], Awaitable[Reply | None]]


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter


@dataclass
class Bench:
    """A server, a client of it, and what was asked and waited for."""

    base: str
    http: ForgeHttpClient
    received: list[ReceivedRequest] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)


@asynccontextmanager
async def serving(answer: Answering) -> AsyncIterator[Bench]:
    bench: Bench

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                method, path, _ = first.split()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                bench.received.append(ReceivedRequest(method, path, headers, body, writer))
                reply = await answer(bench.received[-1])
                if reply is None:
                    break
                status, extra, content = reply
                extra = {"Content-Length": str(len(content)), **extra}
                lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in extra.items())]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def sleep(seconds: float) -> None:
        bench.slept.append(seconds)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    speaker = HostText("GitHub", "the token from GITHUB_TOKEN", "gh auth login")
    bench = Bench(base, ForgeHttpClient(base, speaker, {"Authorization": "Bearer s3cret"}, sleep=sleep))
    try:
        yield bench
    finally:
        await bench.http.close()
        server.close()


def as_json(data: Any, status: int = 200, **headers: str) -> Reply:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(data).encode()


async def test_an_unchanged_response_is_not_sent_again() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        if request.headers.get("if-none-match") == '"1"':
            return 304, {"ETag": '"1"'}, b""
        return as_json([1, 2], ETag='"1"')

    async with serving(answer) as bench:
        first = await bench.http.get("x")
        second = await bench.http.get("x")
        assert (first.data, first.unchanged) == ([1, 2], False)
        assert (second.data, second.unchanged) == ([1, 2], True)
        assert bench.http.budget.unchanged_count == 1


async def test_only_the_kept_part_stays_in_memory() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return (
            (304, {}, b"") if "if-none-match" in request.headers else as_json({"large": "x" * 1000, "n": 7}, ETag='"1"')
        )

    async with serving(answer) as bench:
        for _ in range(2):
            assert (await bench.http.get("x", keep=lambda data: data["n"])).data == 7


async def test_the_cache_is_limited_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing since the last change has another address each time; strangers say how long it is."""
    monkeypatch.setattr(http, "MAX_CACHED_BYTES", 10_000)

    async def answer(request: ReceivedRequest) -> Reply:
        is_conditional = "if-none-match" in request.headers
        return (304, {}, b"") if is_conditional else as_json({"large": "x" * 3_000}, ETag='"1"')

    async with serving(answer) as bench:
        for number in range(50):
            await bench.http.get(f"since/{number}")
        for number in range(50):
            await bench.http.get(f"of/{number}", keep=len)
        remembered = [(await bench.http.get(f"since/{number}")).unchanged for number in (49, 48, 47, 46, 0)]
        assert remembered == [True, True, True, False, False]
        assert (await bench.http.get("of/0", keep=len)).unchanged, "little is kept of it, however long it was"


async def test_an_endless_listing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_RESPONSE_BYTES", 10_000)

    async def answer(request: ReceivedRequest) -> Reply:
        more = f"<http://{request.headers['host']}/x?page={len(request.path)}>; rel=next"
        return as_json([{"text": "x" * 5_000}], Link=more)

    async with serving(answer) as bench:
        with pytest.raises(Temporary, match="see who fills it"):
            await bench.http.get_pages("x?per_page=100")
        assert len(bench.received) == 16


async def test_long_texts_are_cut_in_memory() -> None:
    async def answer(_request: ReceivedRequest) -> Reply:
        return as_json([{"text": "x" * 1_000_000, "notes": [{"body": "y" * 300_000, "n": 1}]}, ["z" * 300_000], None])

    async with serving(answer) as bench:
        first, second, nothing = (await bench.http.get("x")).data
    assert len(first["text"]) == len(first["notes"][0]["body"]) == len(second[0]) == MAX_FORGE_TEXT_LENGTH + 1
    assert (first["notes"][0]["n"], nothing) == (1, None)


async def test_each_reader_of_an_address_keeps_its_own_part() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return (304, {}, b"") if "if-none-match" in request.headers else as_json({"a": 1, "b": 2}, ETag='"1"')

    def first(data: Any) -> Any:
        return data["a"]

    def second(data: Any) -> Any:
        return data["b"]

    async with serving(answer) as bench:
        values = [(await bench.http.get("x", keep=keep)).data for keep in (first, second, None, first, second, None)]
    whole = {"a": 1, "b": 2}
    assert values == [1, 2, whole, 1, 2, whole]
    assert [request.headers.get("if-none-match") for request in bench.received] == [None] * 3 + ['"1"'] * 3


async def test_all_pages_are_read_and_each_is_conditional() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        if "if-none-match" in request.headers:
            return 304, {}, b""
        page = int(request.path.rpartition("=")[2]) if "page=" in request.path else 1
        link = (
            {"Link": f'<{bench.base}/x?page={page + 1}>; rel="next", <{bench.base}/x?page=3>; rel="last"'}
            if page < 3
            else {}
        )
        status, headers, body = as_json([page], ETag=f'"{page}"')
        return status, {**headers, **link}, body

    async with serving(answer) as bench:
        assert await bench.http.get_pages("x") == [1, 2, 3]
        assert await bench.http.get_pages("x") == [1, 2, 3]
        assert len(bench.received) == 6
        assert bench.http.budget.unchanged_count == 3


async def test_pages_are_limited_and_stay_on_their_host() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        there = "http://127.0.0.1:9/steal" if "elsewhere" in request.path else f"{bench.base}/x"
        return as_json([1], Link=f'<{there}>; rel="next"')

    async with serving(answer) as bench:
        assert await bench.http.get_pages("x", most=4) == [1] * 4
        assert await bench.http.get_pages("elsewhere") == [1]


async def test_a_renamed_repository_is_followed_and_remembered() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        if request.path == "/repos/o/old":
            return 301, {"Location": f"{bench.base}/repositories/7"}, b""
        return as_json({"method": request.method, "body": request.body.decode()})

    async with serving(answer) as bench:
        assert (await bench.http.get("repos/o/old")).data["method"] == "GET"
        assert (await bench.http.get("repos/o/old")).data["method"] == "GET"
        assert [request.path for request in bench.received] == ["/repos/o/old", "/repositories/7", "/repositories/7"]
        moved = await bench.http.call("PATCH", "repos/o/old", {"a": 1})
        assert moved.data == {"method": "PATCH", "body": '{"a": 1}'}


async def test_a_repository_that_moved_back_is_found_again() -> None:
    moved = True

    async def answer(request: ReceivedRequest) -> Reply:
        if request.path == "/old":
            return (301, {"Location": "/new"}, b"") if moved else as_json("old")
        return as_json("new") if moved else as_json({}, 404)

    async with serving(answer) as bench:
        assert (await bench.http.get("old")).data == "new"
        moved = False
        assert (await bench.http.get("old")).data == "old"


async def test_a_circle_of_redirects_ends() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return 307, {"Location": "/b" if request.path == "/a" else "/a"}, b""

    async with serving(answer) as bench:
        with pytest.raises(AoError, match="in a circle"):
            await bench.http.get("a")


async def test_the_token_goes_to_no_other_host() -> None:
    async def log(request: ReceivedRequest) -> Reply:
        return 200, {}, b"the log"

    async with serving(log) as storage:

        async def answer(request: ReceivedRequest) -> Reply:
            return 302, {"Location": f"{storage.base}/blob"}, b""

        async with serving(answer) as bench:
            assert await bench.http.get_tail("logs", 100) == b"the log"
            assert "authorization" in bench.received[0].headers
            assert "authorization" not in storage.received[0].headers
            with pytest.raises(AoError, match="to another host"):
                await bench.http.get("x")


async def test_a_connection_cut_in_the_middle_is_tried_again_within_bounds() -> None:
    cuts = 2

    async def answer(request: ReceivedRequest) -> Reply | None:
        nonlocal cuts
        if cuts:
            cuts -= 1
            request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1, 2")
            return None
        return as_json([1, 2])

    async with serving(answer) as bench:
        assert (await bench.http.get("x")).data == [1, 2]
        assert len(bench.slept) == 2
        cuts = 99
        with pytest.raises(Temporary, match="could not be asked"):
            await bench.http.get("x")
        assert len(bench.received) == 3 + MAX_ATTEMPTS


async def test_an_unsafe_request_is_not_repeated() -> None:
    async def answer(request: ReceivedRequest) -> Reply | None:
        return None

    async with serving(answer) as bench:
        with pytest.raises(Temporary):
            await bench.http.call("POST", "x", {})
        assert len(bench.received) == 1
        with pytest.raises(Temporary):
            await bench.http.call("POST", "x", {}, safe=True)
        assert len(bench.received) == 1 + MAX_ATTEMPTS


async def test_a_host_that_is_down_is_temporary() -> None:
    speaker = HostText("GitHub", "the token", "gh auth login")

    async def sleep(_: float) -> None:
        pass

    http = ForgeHttpClient("http://127.0.0.1:9", speaker, {}, sleep=sleep)
    with pytest.raises(Temporary, match=r"127\.0\.0\.1:9 could not be asked"):
        await http.get("x")
    await http.close()


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_hiccup_of_the_host_is_tried_again(status: int) -> None:
    failures = 1

    async def answer(request: ReceivedRequest) -> Reply:
        nonlocal failures
        failures -= 1
        return (status, {}, b"<html>") if failures >= 0 else as_json(1)

    async with serving(answer) as bench:
        assert (await bench.http.get("x")).data == 1


async def test_nothing_is_sent_before_a_rate_limit_ends() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return as_json({"message": "You have exceeded a secondary rate limit"}, 403, Retry_After="120")

    async with serving(answer) as bench:
        with pytest.raises(Temporary, match="takes no more requests before") as caught:
            await bench.http.get("x")
        assert caught.value.until is not None
        for _ in range(5):
            with pytest.raises(Temporary):
                await bench.http.call("POST", "x", {})
        assert len(bench.received) == 1
        assert not bench.slept


async def test_refusals_are_errors_and_may_be_allowed() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return as_json({"message": "no"}, int(request.path[1:]))

    async with serving(answer) as bench:
        with pytest.raises(Denied):
            await bench.http.get("401")
        with pytest.raises(NotFound):
            await bench.http.get("404")
        assert (await bench.http.call("PUT", "405", {}, allow=(405,))).data == {"message": "no"}


async def test_a_proxys_page_is_no_answer() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return 200, {"Content-Type": "text/html"}, b"<html>sign in</html>"

    async with serving(answer) as bench:
        with pytest.raises(Temporary, match="no JSON"):
            await bench.http.get("x")


HUGE = 200 * 1024 * 1024


async def send_huge(request: ReceivedRequest, *, chunked: bool) -> None:
    """Send 200 MB of lines, with a marker in the last one."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {HUGE}"
    request.writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
    piece = b"x" * (1024 * 1024)
    for number in range(HUGE // len(piece)):
        part = piece[:-5] + b"\nend\n" if number == 199 else piece
        request.writer.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        await request.writer.drain()
    request.writer.write(b"0\r\n\r\n" if chunked else b"")


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_huge_log_is_never_held_whole(chunked: bool) -> None:
    async def answer(request: ReceivedRequest) -> Reply | None:
        await send_huge(request, chunked=chunked)
        return None

    async with serving(answer) as bench:
        tracemalloc.start()
        try:
            end = await bench.http.get_tail("log", 50_000)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(end) == 50_000
        assert end.endswith(b"\nend\n")
        assert peak < 20 * 1024 * 1024


async def test_only_the_end_is_requested_if_the_host_supports_it() -> None:
    async def answer(request: ReceivedRequest) -> Reply | None:
        if "range" in request.headers:
            assert request.headers["range"] == f"bytes={HUGE - 10}-{HUGE - 1}"
            return 206, {"Content-Range": "…".encode().hex()}, b"0123456789"
        request.writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {HUGE}\r\nAccept-Ranges: bytes\r\n\r\nxxx".encode())
        await request.writer.drain()
        await asyncio.sleep(0.05)
        return None

    async with serving(answer) as bench:
        assert await bench.http.get_tail("log", 10) == b"0123456789"


async def test_a_log_that_is_cut_off_is_tried_again() -> None:
    first = True

    async def answer(request: ReceivedRequest) -> Reply | None:
        nonlocal first
        if first:
            first = False
            request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nthe")
            return None
        return 200, {}, b"the whole"

    async with serving(answer) as bench:
        assert await bench.http.get_tail("log", 100) == b"the whole"


async def test_a_log_that_is_gone_is_not_found() -> None:
    async def answer(request: ReceivedRequest) -> Reply:
        return as_json({"message": "Logs have expired"}, 410)

    async with serving(answer) as bench:
        with pytest.raises(NotFound, match="Logs have expired"):
            await bench.http.get_tail("log", 100)


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("", None),
        ('<https://x/?page=2>; rel="next"', "https://x/?page=2"),
        ('<https://x/?page=1>; rel="prev", <https://x/?page=3>; rel="next"', "https://x/?page=3"),
        ('<https://x/?page=9>; rel="last"', None),
        ("garbage", None),
    ],
)
def test_the_next_page_is_found(link: str, expected: str | None) -> None:
    assert next_page(link) == expected


def test_the_http_library_is_loaded_only_when_used() -> None:
    modules = ("plugins.forges.github.pull_requests", "plugins.forges.github.issues", "plugins.forges.github.webhooks")
    imports = "; ".join(f"import agent_orchestrator.{module}" for module in modules)
    code = f"import sys; {imports}; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ODD_DATE = "Mon, 20 Nov 1995 19:12:08 +99999999999999"


@pytest.mark.parametrize(
    ("date", "skew"), [("Thu, 01 Jan 1970 00:16:40 GMT", 900.5), ("yesterday", None), ("", None), (ODD_DATE, None)]
)
async def test_the_clock_skew_of_a_host_is_measured(date: str, skew: float | None) -> None:
    async def answer(_request: ReceivedRequest) -> Reply:
        return 200, {"Date": date} if date else {}, b"{}"

    async with serving(answer) as bench:
        bench.http._clock = lambda: 100.0
        await bench.http.get("x")
        assert bench.http.clock_skew == skew and bench.http.status_counts == {200: 1}
