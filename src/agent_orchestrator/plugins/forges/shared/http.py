"""Speaking HTTP with one host by one token: conditional, paged, counted, and with errors that say what to do.

`httpx2` is imported with the first request, so that whoever speaks with no forge does not pay for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.forges.shared.refusals import Speaker, limited, refusal, too_many
from agent_orchestrator.plugins.forges.shared.request_budget import Budget
from agent_orchestrator.protocols.forge import LONGEST_TEXT

if TYPE_CHECKING:
    import httpx2

CONNECT_WITHIN = 10.0
SILENCE = 30.0
"""The longest time between two pieces of an answer."""
WHOLE = 120.0
"""The longest time for one answer."""
LARGEST = 64 * 1024 * 1024
"""The largest answer that is taken whole."""
FULL, FEW = 100, 5
"""Things on a page; on each of a listing that has a page which is too large: strangers may write a million characters into one."""
MOST_OF_LISTING = 8
"""Times the largest answer that all pages of a listing may be."""
TRIES = 3
MOST_REDIRECTS = 5
MOST_PAGES = 50
REMEMBERED = 1_000
"""Answers that are kept for conditional requests."""
ROOM = 64 * 1024 * 1024
"""Bytes of those that are kept whole: strangers' texts may be long, and a listing since the last change has another address each time."""
_PIECE = 64 * 1024
_NAMES = frozenset(
    {"query", "head", "base", "sha", "ref", "branch", "source_branch", "target_branch", "id", "after", "cursor"}
    | {"nextPageToken", "jql"}
)
"""What of a request is no text for people."""

Keep = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gave back."""

    status: int
    headers: Mapping[str, str]
    data: Any
    """The body's JSON, or what `keep` made of it; none where there is none."""
    unchanged: bool = False
    """It is the same as the last time: nothing was spent."""
    size: int = 0
    """Bytes that were read."""


@dataclass(slots=True)
class _Raw:
    status: int
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _Known:
    etag: str
    data: Any
    links: str
    size: int
    """Of what is kept whole; nothing where `keep` made something of it."""


@dataclass(slots=True)
class _Loop:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))


class Http:
    """One host, one token."""

    def __init__(
        self,
        base: str,
        speaker: Speaker,
        headers: Mapping[str, str],
        *,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        resource: Callable[[str], str] | None = None,
    ) -> None:
        self.base = base.rstrip("/") + "/"
        self.speaker = speaker
        self.budget = budget or Budget(clock)
        self._headers = {"User-Agent": "agent-orchestrator", **headers}
        self._sleep = sleep
        self._resource = resource or (lambda _: "core")
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()
        self._kept = 0
        self._moved: OrderedDict[str, str] = OrderedDict()
        self._open: _Loop | None = None
        self.skew: float | None = None
        """Seconds by which its clock was ahead of ours, the last time that it said."""
        self._clock = clock
        self.answers: Counter[int] = Counter()
        """How often it answered with which status."""
        self.rejected = False
        """The host did not accept the token the last time."""

    async def get(self, path: str, *, keep: Keep | None = None) -> Answer:
        """Read something; from memory where the host says that it is unchanged. `keep`: what of it is remembered."""
        url = self._url(path)
        memory = (url, getattr(keep, "__module__", ""), getattr(keep, "__qualname__", ""))
        known = self._known.get(memory)
        extra = {"If-None-Match": known.etag} if known else {}
        raw = await self._send("GET", url, extra)
        if raw.status == 304 and known is not None:
            self._known.move_to_end(memory)
            return Answer(200, {**raw.headers, "link": known.links}, known.data, unchanged=True)
        data = self._checked("GET", path, raw)
        data = keep(data) if keep else _without_excess(data) if len(raw.body) > LONGEST_TEXT else data
        if raw.status == 200 and raw.headers.get("etag"):
            size = 0 if keep else len(raw.body)
            self._remember(memory, _Known(raw.headers["etag"], data, raw.headers.get("link", ""), size))
        return Answer(raw.status, raw.headers, data, size=len(raw.body))

    def _remember(self, memory: tuple[str, str, str], answer: _Known) -> None:
        before = self._known.pop(memory, None)
        self._kept += answer.size - (before.size if before else 0)
        self._known[memory] = answer
        while len(self._known) > REMEMBERED:
            self._kept -= self._known.popitem(last=False)[1].size
        while self._kept > ROOM:
            oldest = next(one for one, known in self._known.items() if known.size)
            self._kept -= self._known.pop(oldest).size

    async def pages(self, path: str, *, most: int = MOST_PAGES, keep: Keep | None = None) -> list[Any]:
        """All that a listing has, page by page, of at most so many pages; of smaller ones where one is too large."""
        try:
            return await self._pages(path, most, keep)
        except TooLarge:
            smaller = path.replace(f"per_page={FULL}", f"per_page={FEW}")
            if smaller == path:
                raise
            return await self._pages(smaller, most * FULL // FEW, keep)

    async def _pages(self, path: str, most: int, keep: Keep | None) -> list[Any]:
        found: list[Any] = []
        size = 0
        for _ in range(most):
            answer = await self.get(path, keep=keep)
            size += answer.size
            if size > MOST_OF_LISTING * LARGEST:
                raise Temporary(f"{_short(path)} is longer than {size >> 20} MB", "see who fills it, and remove that")
            found += answer.data if isinstance(answer.data, list) else []
            following = next_page(answer.headers.get("link", ""))
            if following is None or not self._ours(self._url(following)):
                break
            path = following
        return found

    async def call(
        self, method: str, path: str, body: Any = None, *, safe: bool = False, allow: Collection[int] = ()
    ) -> Answer:
        """Do something, with no secret in what is said.

        `safe`: it may be sent again when its answer was cut off; `allow`: refusals that are an answer too.
        """
        content = b"" if body is None else json.dumps(KNOWN.tree(body, _NAMES)).encode()
        raw = await self._send(method, self._url(path), {"Content-Type": "application/json"}, content, safe=safe)
        if raw.status in allow and not too_many(raw.status, raw.headers, _json(raw.body)):
            return Answer(raw.status, raw.headers, _json(raw.body))
        return Answer(raw.status, raw.headers, self._checked(method, path, raw))

    async def tail(self, path: str, most: int) -> bytes:
        """The last bytes of something that may be large; it is neither kept nor, where the host can, sent whole."""
        for attempt in range(1, TRIES + 1):
            try:
                async with asyncio.timeout(WHOLE):
                    return await self._tail(path, most)
            except TimeoutError:
                raise Temporary(
                    f"{self.speaker.name} did not send {path} within {WHOLE:g} s", "try again later"
                ) from None
            except _Cut as cut:
                if attempt == TRIES:
                    raise self._unreachable("GET", path, cut) from None
            await self._sleep(0.5 * 2.0**attempt)
        raise AssertionError

    async def _tail(self, path: str, most: int) -> bytes:
        url = self._url(path)
        for _ in range(MOST_REDIRECTS):
            async with self._streamed("GET", url, {"Accept-Encoding": "identity"}) as response:
                headers = _lowered(response.headers)
                if response.status_code in (301, 302, 303, 307, 308) and headers.get("location"):
                    url = urljoin(url, headers["location"])
                    continue
                if response.status_code >= 400:
                    body = await _whole(response)
                    self._raise("GET", path, _Raw(response.status_code, headers, body))
                length = headers.get("content-length", "")
                whole = int(length) if length.isdigit() else 0
                if whole <= most or headers.get("accept-ranges", "").lower() != "bytes":
                    return await _last(response, most)
            wanted = {"Accept-Encoding": "identity", "Range": f"bytes={whole - most}-{whole - 1}"}
            async with self._streamed("GET", url, wanted) as response:
                if response.status_code >= 400:
                    body = await _whole(response)
                    self._raise("GET", path, _Raw(response.status_code, _lowered(response.headers), body))
                return await _last(response, most)
        raise AoError(f"{self.speaker.name} redirects {path} in a circle")

    async def close(self) -> None:
        """Let go of the connections."""
        opened, self._open = self._open, None
        if opened is not None and opened.loop is asyncio.get_running_loop():
            await opened.client.aclose()

    def _url(self, path: str) -> str:
        return path if path.startswith(("http://", "https://")) else self.base + path.lstrip("/")

    def _ours(self, url: str) -> bool:
        """Is it the host that the token is for?"""
        return urlsplit(url)[:2] == urlsplit(self.base)[:2]

    def _checked(self, method: str, path: str, raw: _Raw) -> Any:
        if raw.status >= 300:
            self._raise(method, path, raw)
        if not raw.body or raw.status == 204:
            return None
        try:
            return json.loads(raw.body)
        except (ValueError, RecursionError):
            raise Temporary(
                f"{self.speaker.name} answered {method} {_short(path)} with something that is no JSON",
                "check apiUrl, and whether a proxy answers in its place",
            ) from None

    def _raise(self, method: str, path: str, raw: _Raw) -> None:
        data = _json(raw.body)
        what = f"{method} {_short(path)}"
        kind = too_many(raw.status, raw.headers, data)
        if kind:
            resource = self._resource(urlsplit(self._url(path)).path)
            until = self.budget.refused(raw.headers, secondary=kind == "secondary", resource=resource)
            raise limited(self.speaker, what, until)
        raise refusal(self.speaker, what, raw.status, raw.headers, data)

    async def _send(
        self, method: str, url: str, extra: Mapping[str, str], content: bytes = b"", *, safe: bool = False
    ) -> _Raw:
        """Send it, follow where it moved to, and try again what was cut off if that can do no harm."""
        harmless = safe or method in ("GET", "HEAD")
        for attempt in range(1, TRIES + 1):
            last = attempt == TRIES
            self._permitted(method, url)
            try:
                raw = await self._followed(method, url, extra, content)
            except _Cut as cut:
                if last or not (harmless or cut.before):
                    raise self._unreachable(method, url, cut) from None
            else:
                if raw.status not in (502, 503, 504) or not harmless or last or "retry-after" in raw.headers:
                    return raw
            await self._sleep(0.25 * 2.0**attempt)
        raise AssertionError

    def _permitted(self, method: str, url: str) -> None:
        """A request that is certain to be refused is not sent."""
        until = self.budget.until(self._resource(urlsplit(url).path))
        if until is not None:
            raise limited(self.speaker, f"{method} {_short(url)}", until)

    async def _followed(self, method: str, url: str, extra: Mapping[str, str], content: bytes) -> _Raw:
        seen = url
        for _ in range(MOST_REDIRECTS):
            remembered = self._moved.get(url)
            raw = await self._once(method, remembered or url, extra, content)
            if remembered and raw.status == 404:
                del self._moved[url]  # it may have moved back
                continue
            url = remembered or url
            location = raw.headers.get("location")
            if raw.status not in (301, 302, 307, 308) or not location:
                return raw
            target = urljoin(url, location)
            if not self._ours(target):
                raise AoError(f"{self.speaker.name} redirects {method} {_short(seen)} to another host", "check apiUrl")
            if raw.status in (301, 308) and method == "GET":
                self._moved[url] = target
                while len(self._moved) > REMEMBERED:
                    self._moved.popitem(last=False)
            url = target
        self._moved.clear()
        raise AoError(f"{self.speaker.name} redirects {method} {_short(seen)} in a circle")

    async def _once(self, method: str, url: str, extra: Mapping[str, str], content: bytes) -> _Raw:
        try:
            async with asyncio.timeout(WHOLE), self._streamed(method, url, extra, content) as response:
                body = await _whole(response)
                raw = _Raw(response.status_code, _lowered(response.headers), body)
        except TimeoutError:
            raise _Cut("time ran out", before=False) from None
        self.answers[raw.status] += 1
        if (skew := _skew(raw.headers.get("date", ""), self._clock())) is not None:
            self.skew = skew
        self.budget.seen(raw.headers, raw.status)
        self.rejected = raw.status == 401
        return raw

    @asynccontextmanager
    async def _streamed(
        self, method: str, url: str, extra: Mapping[str, str], content: bytes = b""
    ) -> AsyncIterator[httpx2.Response]:
        import httpx2

        here = self._here()
        headers = {**(self._headers if self._ours(url) else {}), **extra}
        try:
            async with (
                here.slots,
                here.client.stream(method, url, headers=headers, content=content or None) as response,
            ):
                yield response
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise _Cut(_reason(error), before=True) from None
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.DecodingError) as error:
            raise _Cut(_reason(error), before=False) from None

    def _here(self) -> _Loop:
        """The client of the running loop: connections of another one cannot be used."""
        import httpx2

        loop = asyncio.get_running_loop()
        if self._open is None or self._open.loop is not loop:
            timeout = httpx2.Timeout(SILENCE, connect=CONNECT_WITHIN)
            self._open = _Loop(loop, httpx2.AsyncClient(timeout=timeout, follow_redirects=False))
        return self._open

    def _unreachable(self, method: str, url: str, cut: _Cut) -> Temporary:
        host = urlsplit(self.base).netloc
        untrusted = "CERTIFICATE_VERIFY_FAILED" in cut.reason
        wrong = "check the network, and its address in the configuration"
        remedy = "name its authority's certificate in SSL_CERT_FILE" if untrusted else wrong
        return Temporary(f"{host} could not be asked ({method} {_short(url)}): {cut.reason}", remedy)


class TooLarge(Temporary):
    """An answer is larger than any that is taken."""

    def __init__(self) -> None:
        super().__init__(f"an answer is larger than {LARGEST >> 20} MB", "ask for less at a time")


class _Cut(Exception):
    """No whole answer came. `before`: the request did not reach the host."""

    def __init__(self, reason: str, *, before: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.before = before


def next_page(link: str) -> str | None:
    """The address of the next page, from a `Link` header."""
    for part in link.split(","):
        address, *parameters = (piece.strip() for piece in part.split(";"))
        if (
            address.startswith("<")
            and address.endswith(">")
            and any(p in ('rel="next"', "rel=next") for p in parameters)
        ):
            return address[1:-1]
    return None


async def _whole(response: httpx2.Response) -> bytes:
    pieces, size = [], 0
    async for piece in response.aiter_bytes(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise TooLarge
    return b"".join(pieces)


async def _last(response: httpx2.Response, most: int) -> bytes:
    pieces: deque[bytes] = deque()
    size = 0
    async for piece in response.aiter_raw(_PIECE):
        pieces.append(piece)
        size += len(piece)
        while pieces and size - len(pieces[0]) >= most:
            size -= len(pieces.popleft())
    return b"".join(pieces)[-most:] if most else b""


def _without_excess(data: Any) -> Any:
    """The same with no text in it that is longer than what is kept of one."""
    left = [data]
    while left:
        one = left.pop()
        for key, value in one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ():
            if isinstance(value, str):
                one[key] = value[: LONGEST_TEXT + 1]  # by one more it is known to be cut
            else:
                left.append(value)
    return data


def _json(body: bytes) -> Any:
    """A refusal's JSON; none where it is none."""
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None


def _lowered(headers: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _short(url: str) -> str:
    """The path alone: what is behind it is not for people."""
    return urlsplit(url).path or url


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__


def _skew(date: str, now: float) -> float | None:
    """How far ahead a host's clock is; it says whole seconds, and when the answer was made."""
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now
    except (ValueError, OverflowError):
        return None


_SHARED: dict[tuple[str, str, str], Http] = {}


def shared(kind: str, base: str, digest: str, make: Callable[[], Http]) -> Http:
    """The one client for a host and a token: its budget, its memory and its connections are common to all that use it."""
    key = (kind, base.rstrip("/"), digest)
    if key not in _SHARED:
        _SHARED[key] = make()
    return _SHARED[key]


def all_shared() -> list[Http]:
    """Every client in use, for `doctor`."""
    return list(_SHARED.values())


async def close_all() -> None:
    """Let go of all connections."""
    for client in _SHARED.values():
        await client.close()
