"""Send HTTP requests to one forge or tracker host with one token: conditional, paged, counted, with errors that name a remedy.

Look here when a request is sent twice, cached, redirected or cut off. `httpx2` is imported with the first request, so that a process
which talks to no forge does not pay for the import.
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

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.forges.shared.rate_limits import RequestBudget
from agent_orchestrator.plugins.forges.shared.response_errors import (
    HostText,
    rate_limit_error,
    rate_limit_kind,
    response_error,
)
from agent_orchestrator.protocols.forge import MAX_FORGE_TEXT_LENGTH

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection must be open."""
READ_TIMEOUT = 30.0
"""The longest time between two chunks of an answer, in seconds."""
RESPONSE_TIMEOUT = 120.0
"""The longest time for one answer, in seconds."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""The largest answer that is read, in bytes."""
PAGE_SIZE, SMALL_PAGE_SIZE = 100, 5
"""Items per page, and items per page of a listing of which one page is too large: a single text may have a million characters."""
LISTING_SIZE_FACTOR = 8
"""The largest size of all pages of a listing together, in multiples of `MAX_RESPONSE_BYTES`."""
MAX_ATTEMPTS = 3
"""How often a request is sent at most."""
MAX_REDIRECTS = 5
"""Redirects that one request follows at most."""
MAX_PAGES = 50
"""Pages that are read of one listing unless the caller sets another limit."""
MAX_CACHED_RESPONSES = 1_000
"""Answers that are cached for conditional requests."""
MAX_CACHED_BYTES = 64 * 1024 * 1024
"""Bytes of the answers that are cached in full: their texts may be long, and a listing "since the last change" has a new URL each time."""
_CHUNK_BYTES = 64 * 1024
_UNREDACTED_KEYS = frozenset(
    {"query", "head", "base", "sha", "ref", "branch", "source_branch", "target_branch", "id", "after", "cursor"}
    | {"nextPageToken", "jql"}
)
"""Keys of a request whose values are identifiers, not text for people: no secrets are redacted in them."""

JsonExtractor = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ForgeResponse:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    data: Any
    """The body's JSON, or what `keep` extracted from it; None if the body is empty."""
    unchanged: bool = False
    """True if the host answered "not modified" and `data` is from the cache. Such a request costs nothing at GitHub."""
    size: int = 0
    """Bytes that were read."""


@dataclass(slots=True)
class _RawResponse:
    """An answer before its status is checked and its body is parsed."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _CachedResponse:
    """An answer in the cache for conditional requests."""

    etag: str
    data: Any
    links: str
    size: int
    """The body's size if it is cached in full, 0 if `keep` extracted a part of it."""


@dataclass(slots=True)
class _LoopClient:
    """The HTTP client of one event loop, with at most 8 requests at a time."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))


class ForgeHttpClient:
    """The HTTP client for one host and one token."""

    def __init__(
        self,
        base: str,
        speaker: HostText,
        headers: Mapping[str, str],
        *,
        budget: RequestBudget | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        resource: Callable[[str], str] | None = None,
    ) -> None:
        self.base = base.rstrip("/") + "/"
        self.host_text = speaker
        self.budget = budget or RequestBudget(clock)
        self._headers = {"User-Agent": "agent-orchestrator", **headers}
        self._sleep = sleep
        self._resource_of = resource or (lambda _: "core")
        self._cache: OrderedDict[tuple[str, str, str], _CachedResponse] = OrderedDict()
        self._cached_bytes = 0
        self._redirects: OrderedDict[str, str] = OrderedDict()
        self._active: _LoopClient | None = None
        self.clock_skew: float | None = None
        """Seconds by which the host's clock is ahead of ours, by the last answer that has a date; None before that."""
        self._clock = clock
        self.status_counts: Counter[int] = Counter()
        """The number of answers per status."""
        self.is_token_rejected = False
        """True if the host did not accept the token in the last answer (status 401)."""

    async def get(self, path: str, *, keep: JsonExtractor | None = None) -> ForgeResponse:
        """Read a resource, from the cache if the host answers that it is unchanged.

        `keep` extracts the part of the JSON that is returned and cached.
        """
        url = self._full_url(path)
        cache_key = (url, getattr(keep, "__module__", ""), getattr(keep, "__qualname__", ""))
        cached = self._cache.get(cache_key)
        headers = {"If-None-Match": cached.etag} if cached else {}
        raw = await self._send("GET", url, headers)
        if raw.status == 304 and cached is not None:
            self._cache.move_to_end(cache_key)
            return ForgeResponse(200, {**raw.headers, "link": cached.links}, cached.data, unchanged=True)
        data = self._parse_response("GET", path, raw)
        data = keep(data) if keep else _truncate_texts(data) if len(raw.body) > MAX_FORGE_TEXT_LENGTH else data
        if raw.status == 200 and raw.headers.get("etag"):
            size = 0 if keep else len(raw.body)
            self._remember(cache_key, _CachedResponse(raw.headers["etag"], data, raw.headers.get("link", ""), size))
        return ForgeResponse(raw.status, raw.headers, data, size=len(raw.body))

    def _remember(self, cache_key: tuple[str, str, str], answer: _CachedResponse) -> None:
        """Cache an answer and evict the oldest ones beyond `MAX_CACHED_RESPONSES` or `MAX_CACHED_BYTES`."""
        replaced = self._cache.pop(cache_key, None)
        self._cached_bytes += answer.size - (replaced.size if replaced else 0)
        self._cache[cache_key] = answer
        while len(self._cache) > MAX_CACHED_RESPONSES:
            self._cached_bytes -= self._cache.popitem(last=False)[1].size
        while self._cached_bytes > MAX_CACHED_BYTES:
            oldest = next(key for key, cached in self._cache.items() if cached.size)
            self._cached_bytes -= self._cache.pop(oldest).size

    async def get_pages(self, path: str, *, most: int = MAX_PAGES, keep: JsonExtractor | None = None) -> list[Any]:
        """Return all items of a listing, from at most `most` pages; if one page is too large, read it again with smaller pages."""
        try:
            return await self._read_pages(path, most, keep)
        except ResponseTooLarge:
            smaller = path.replace(f"per_page={PAGE_SIZE}", f"per_page={SMALL_PAGE_SIZE}")
            if smaller == path:
                raise
            return await self._read_pages(smaller, most * PAGE_SIZE // SMALL_PAGE_SIZE, keep)

    async def _read_pages(self, path: str, most: int, keep: JsonExtractor | None) -> list[Any]:
        """Read a listing page by page, or raise `Temporary` if it is too long as a whole."""
        items: list[Any] = []
        size = 0
        for _ in range(most):
            answer = await self.get(path, keep=keep)
            size += answer.size
            if size > LISTING_SIZE_FACTOR * MAX_RESPONSE_BYTES:
                raise Temporary(f"{_path_of(path)} is longer than {size >> 20} MB", "see who fills it, and remove that")
            items += answer.data if isinstance(answer.data, list) else []
            following = next_page(answer.headers.get("link", ""))
            if following is None or not self._is_our_host(self._full_url(following)):
                break
            path = following
        return items

    async def call(
        self, method: str, path: str, body: Any = None, *, safe: bool = False, allow: Collection[int] = ()
    ) -> ForgeResponse:
        """Send a request with a JSON body from which secrets are redacted, and return the answer.

        `safe`: the request may be repeated if its answer was cut off. `allow`: error statuses that are returned instead of raised.
        """
        content = b"" if body is None else json.dumps(REDACTOR.redact_tree(body, _UNREDACTED_KEYS)).encode()
        raw = await self._send(method, self._full_url(path), {"Content-Type": "application/json"}, content, safe=safe)
        if raw.status in allow and not rate_limit_kind(raw.status, raw.headers, _parse_json(raw.body)):
            return ForgeResponse(raw.status, raw.headers, _parse_json(raw.body))
        return ForgeResponse(raw.status, raw.headers, self._parse_response(method, path, raw))

    async def get_tail(self, path: str, most: int) -> bytes:
        """Return the last `most` bytes of a large resource. It is not cached; a host that supports ranges sends only that part."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    return await self._stream_end(path, most)
            except TimeoutError:
                raise Temporary(
                    f"{self.host_text.name} did not send {path} within {RESPONSE_TIMEOUT:g} s", "try again later"
                ) from None
            except _ConnectionLost as error:
                if attempt == MAX_ATTEMPTS:
                    raise self._unreachable_error("GET", path, error) from None
            await self._sleep(0.5 * 2.0**attempt)
        raise AssertionError

    async def _stream_end(self, path: str, most: int) -> bytes:
        """Follow redirects and return the end of the resource, by a range request if the host supports it."""
        url = self._full_url(path)
        for _ in range(MAX_REDIRECTS):
            async with self._stream("GET", url, {"Accept-Encoding": "identity"}) as response:
                headers = _lowercase_names(response.headers)
                if response.status_code in (301, 302, 303, 307, 308) and headers.get("location"):
                    url = urljoin(url, headers["location"])
                    continue
                if response.status_code >= 400:
                    body = await _read_whole(response)
                    self._raise_refusal("GET", path, _RawResponse(response.status_code, headers, body))
                length = headers.get("content-length", "")
                total = int(length) if length.isdigit() else 0
                if total <= most or headers.get("accept-ranges", "").lower() != "bytes":
                    return await _read_end(response, most)
            range_headers = {"Accept-Encoding": "identity", "Range": f"bytes={total - most}-{total - 1}"}
            async with self._stream("GET", url, range_headers) as response:
                if response.status_code >= 400:
                    body = await _read_whole(response)
                    self._raise_refusal(
                        "GET", path, _RawResponse(response.status_code, _lowercase_names(response.headers), body)
                    )
                return await _read_end(response, most)
        raise AoError(f"{self.host_text.name} redirects {path} in a circle")

    async def close(self) -> None:
        """Close the connections."""
        active, self._active = self._active, None
        if active is not None and active.loop is asyncio.get_running_loop():
            await active.client.aclose()

    def _full_url(self, path: str) -> str:
        """Return the full URL of a path; a full URL is returned unchanged."""
        return path if path.startswith(("http://", "https://")) else self.base + path.lstrip("/")

    def _is_our_host(self, url: str) -> bool:
        """Return whether a URL is at the host that the token is for."""
        return urlsplit(url)[:2] == urlsplit(self.base)[:2]

    def _parse_response(self, method: str, path: str, raw: _RawResponse) -> Any:
        """Return the JSON of an answer, or None if it has no body. Raise the error that its status stands for."""
        if raw.status >= 300:
            self._raise_refusal(method, path, raw)
        if not raw.body or raw.status == 204:
            return None
        try:
            return json.loads(raw.body)
        except (ValueError, RecursionError):
            raise Temporary(
                f"{self.host_text.name} answered {method} {_path_of(path)} with something that is no JSON",
                "check apiUrl, and whether a proxy answers in its place",
            ) from None

    def _raise_refusal(self, method: str, path: str, raw: _RawResponse) -> None:
        """Raise the error of a refused request. If it was rate-limited, record that in the budget."""
        data = _parse_json(raw.body)
        request = f"{method} {_path_of(path)}"
        limit_kind = rate_limit_kind(raw.status, raw.headers, data)
        if limit_kind:
            resource = self._resource_of(urlsplit(self._full_url(path)).path)
            until = self.budget.record_refusal(raw.headers, secondary=limit_kind == "secondary", resource=resource)
            raise rate_limit_error(self.host_text, request, until)
        raise response_error(self.host_text, request, raw.status, raw.headers, data)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes = b"", *, safe: bool = False
    ) -> _RawResponse:
        """Send a request, follow redirects, and retry a cut-off or failed one if repeating it cannot do harm."""
        is_repeatable = safe or method in ("GET", "HEAD")
        for attempt in range(1, MAX_ATTEMPTS + 1):
            is_last = attempt == MAX_ATTEMPTS
            self._check_budget(method, url)
            try:
                raw = await self._follow_redirects(method, url, headers, content)
            except _ConnectionLost as error:
                if is_last or not (is_repeatable or error.is_unsent):
                    raise self._unreachable_error(method, url, error) from None
            else:
                if raw.status not in (502, 503, 504) or not is_repeatable or is_last or "retry-after" in raw.headers:
                    return raw
            await self._sleep(0.25 * 2.0**attempt)
        raise AssertionError

    def _check_budget(self, method: str, url: str) -> None:
        """Raise `Temporary` if the host is certain to refuse the request because of its rate limit."""
        until = self.budget.blocked_until(self._resource_of(urlsplit(url).path))
        if until is not None:
            raise rate_limit_error(self.host_text, f"{method} {_path_of(url)}", until)

    async def _follow_redirects(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> _RawResponse:
        """Send a request and follow redirects on the same host. Permanent redirects are remembered for the next request."""
        first_url = url
        for _ in range(MAX_REDIRECTS):
            known_target = self._redirects.get(url)
            raw = await self._send_once(method, known_target or url, headers, content)
            if known_target and raw.status == 404:
                del self._redirects[url]  # the resource may have moved back
                continue
            url = known_target or url
            location = raw.headers.get("location")
            if raw.status not in (301, 302, 307, 308) or not location:
                return raw
            target = urljoin(url, location)
            if not self._is_our_host(target):
                raise AoError(
                    f"{self.host_text.name} redirects {method} {_path_of(first_url)} to another host", "check apiUrl"
                )
            if raw.status in (301, 308) and method == "GET":
                self._redirects[url] = target
                while len(self._redirects) > MAX_CACHED_RESPONSES:
                    self._redirects.popitem(last=False)
            url = target
        self._redirects.clear()
        raise AoError(f"{self.host_text.name} redirects {method} {_path_of(first_url)} in a circle")

    async def _send_once(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> _RawResponse:
        """Send a request once, and record its status, the host's clock and the rate limits in its headers."""
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT), self._stream(method, url, headers, content) as response:
                body = await _read_whole(response)
                raw = _RawResponse(response.status_code, _lowercase_names(response.headers), body)
        except TimeoutError:
            raise _ConnectionLost("time ran out", before=False) from None
        self.status_counts[raw.status] += 1
        if (skew := _clock_skew(raw.headers.get("date", ""), self._clock())) is not None:
            self.clock_skew = skew
        self.budget.record(raw.headers, raw.status)
        self.is_token_rejected = raw.status == 401
        return raw

    @asynccontextmanager
    async def _stream(
        self, method: str, url: str, extra_headers: Mapping[str, str], content: bytes = b""
    ) -> AsyncIterator[httpx2.Response]:
        """Open a streamed request; the token is sent only to our own host. Raise `_ConnectionLost` if no whole answer comes."""
        import httpx2

        active = self._client_of_loop()
        headers = {**(self._headers if self._is_our_host(url) else {}), **extra_headers}
        try:
            async with (
                active.slots,
                active.client.stream(method, url, headers=headers, content=content or None) as response,
            ):
                yield response
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise _ConnectionLost(_reason_of(error), before=True) from None
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.DecodingError) as error:
            raise _ConnectionLost(_reason_of(error), before=False) from None

    def _client_of_loop(self) -> _LoopClient:
        """Return the client of the running event loop: connections of another loop cannot be used."""
        import httpx2

        loop = asyncio.get_running_loop()
        if self._active is None or self._active.loop is not loop:
            timeout = httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
            self._active = _LoopClient(loop, httpx2.AsyncClient(timeout=timeout, follow_redirects=False))
        return self._active

    def _unreachable_error(self, method: str, url: str, error: _ConnectionLost) -> Temporary:
        """Return the error for a host that cannot be reached."""
        host = urlsplit(self.base).netloc
        is_untrusted = "CERTIFICATE_VERIFY_FAILED" in error.reason
        default_remedy = "check the network, and its address in the configuration"
        remedy = "name its authority's certificate in SSL_CERT_FILE" if is_untrusted else default_remedy
        return Temporary(f"{host} could not be asked ({method} {_path_of(url)}): {error.reason}", remedy)


class ResponseTooLarge(Temporary):
    """The error for an answer that is larger than `MAX_RESPONSE_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"an answer is larger than {MAX_RESPONSE_BYTES >> 20} MB", "ask for less at a time")


class _ConnectionLost(Exception):
    """Raised when no whole answer came. `before`: the request did not reach the host."""

    def __init__(self, reason: str, *, before: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_unsent = before


def next_page(link: str) -> str | None:
    """Return the URL of the next page from a `Link` header, or None."""
    for part in link.split(","):
        address, *parameters = (piece.strip() for piece in part.split(";"))
        if (
            address.startswith("<")
            and address.endswith(">")
            and any(parameter in ('rel="next"', "rel=next") for parameter in parameters)
        ):
            return address[1:-1]
    return None


async def _read_whole(response: httpx2.Response) -> bytes:
    """Read a whole body, or raise `ResponseTooLarge`."""
    chunks, size = [], 0
    async for chunk in response.aiter_bytes(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            raise ResponseTooLarge
    return b"".join(chunks)


async def _read_end(response: httpx2.Response, most: int) -> bytes:
    """Read a body and return its last `most` bytes, holding not much more than these in memory."""
    chunks: deque[bytes] = deque()
    size = 0
    async for chunk in response.aiter_raw(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        while chunks and size - len(chunks[0]) >= most:
            size -= len(chunks.popleft())
    return b"".join(chunks)[-most:] if most else b""


def _truncate_texts(data: Any) -> Any:
    """Cut all texts in parsed JSON, in place, to one character more than the longest text that is kept."""
    pending = [data]
    while pending:
        container = pending.pop()
        for key, value in (
            container.items()
            if isinstance(container, dict)
            else enumerate(container)
            if isinstance(container, list)
            else ()
        ):
            if isinstance(value, str):
                container[key] = value[: MAX_FORGE_TEXT_LENGTH + 1]  # the extra character shows later that it was cut
            else:
                pending.append(value)
    return data


def _parse_json(body: bytes) -> Any:
    """Parse the JSON of a refusal; return None if it is empty or not JSON."""
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None


def _lowercase_names(headers: Any) -> dict[str, str]:
    """Return headers with lower-case names."""
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _path_of(url: str) -> str:
    """Return the path of a URL without its query, which is not for people."""
    return urlsplit(url).path or url


def _reason_of(error: Exception) -> str:
    """Return an error's text on one line, or its type if it has none."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def _clock_skew(date: str, now: float) -> float | None:
    """Return by how many seconds the host's clock is ahead of ours, or None.

    The `Date` header has whole seconds, so half a second is added.
    """
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now
    except (ValueError, OverflowError):
        return None


_CLIENTS: dict[tuple[str, str, str], ForgeHttpClient] = {}
"""The clients in use, by kind, base URL and the token's digest."""


def shared_client(kind: str, base: str, digest: str, make: Callable[[], ForgeHttpClient]) -> ForgeHttpClient:
    """Return the client for a host and a token, made at first use. All its users share its budget, cache and connections."""
    key = (kind, base.rstrip("/"), digest)
    if key not in _CLIENTS:
        _CLIENTS[key] = make()
    return _CLIENTS[key]


def shared_clients() -> list[ForgeHttpClient]:
    """Return every client in use, for `ao doctor`."""
    return list(_CLIENTS.values())


async def close_shared_clients() -> None:
    """Close the connections of all clients."""
    for client in _CLIENTS.values():
        await client.close()
