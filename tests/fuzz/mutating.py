"""Inputs near to real ones: seeds that are cut, joined, repeated, and have their values replaced by odd ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "\x1b[2J\x1b]0;x\x07",
    "\r\n",
    "\u202e",
    "é" * 3,
    "😀",
    "../../etc/passwd",
    "-x",
    "--upload-pack=x",
    "{{ 1/0 }}",
    "${HOME}",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-11-15T18:00:00Z",
    "a" * 300,
    "1_000",
    "٣",
    "²",
    "1e999",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1 << 31,
    1 << 63,
    -(1 << 70),
    10**400,
    0.5,
    -0.0,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": ""},
    {"type": []},
    *ODD_TEXTS,
)
ODD_BYTES = (
    b"\x00",
    b"\n",
    b"\r\n",
    b"\r",
    b"\xff",
    b"\xc3",
    b"\x1b[",
    b"\x1b]",
    b"\x1b\\",
    b"\x9b",
    b"\x07",
    b'"',
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b" ",
    b"\t",
    b"#",
    b"&a",
    b"*a",
    b"<<",
    b"!!python/object",
    b"%",
    b"-1",
    b"0000",
    b"ffff",
    b"\xe2\x80\xae",
    b"null",
    b"[" * 40,
)


def near(seeds: Sequence[bytes], shape: str, words: Sequence[bytes] = ()) -> SearchStrategy[bytes]:
    """Bytes near to the seeds. `shape`: `json` has JSON in it, a document or one a line; `lines` is text; `bytes` is neither."""
    known = [seed for seed in seeds if seed] or [b" "]
    edits = _edited(known, (*words, *ODD_BYTES))
    return st.one_of(_told(known), edits) if shape == "json" else edits


@st.composite
def _edited(draw: DrawFn, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A seed after a few edits of its bytes and lines."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 5))):
        at, end = sorted((_place(draw, data), _place(draw, data)))
        match draw(st.integers(0, 6)):
            case 0:
                data = data[:at] + draw(st.sampled_from(words)) + data[at:]
            case 1:
                data = data[:at] + draw(st.binary(max_size=4)) + data[at + 1 :]
            case 2:
                data = data[:at] + data[end:]
            case 3:
                data = data[:end] + data[at:end] + data[end:]
            case 4:
                other = draw(st.sampled_from(seeds))
                data = data[:at] + other[_place(draw, other) :]
            case 5:
                lines = data.split(b"\n")
                one, two = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
                lines[one], lines[two] = lines[two], lines[one]
                data = b"\n".join(lines)
            case _:
                data = data[:at]
    return data[: 1 << 16]


EACH: tuple[Any, ...] = (None, True, -1, 0.5, 10**40, float("nan"), "x", "\x00", "\ud800", [], {}, [None], [[]], [{}])


def each_odd(seed: bytes) -> Iterator[list[bytes]]:
    """Lines of JSON, each as often as it has values, one of them replaced: all that have the same odd value at a time."""
    for odd in EACH:
        found: list[bytes] = []
        for line in seed.split(b"\n"):
            begin = max(0, line.find(b"{"))
            document = _loaded(line[begin:])
            for owner, key in _places(document):
                before, owner[key] = owner[key], odd
                found.append(line[:begin] + json.dumps(document).encode())
                owner[key] = before
        yield found


def _place(draw: DrawFn, data: bytes) -> int:
    return draw(st.integers(0, len(data)))


@st.composite
def _told(draw: DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed whose JSON says something else in a few places."""
    seed = draw(st.sampled_from(seeds))
    whole = _loaded(seed)
    lines = [seed] if whole is not None else seed.split(b"\n")
    documents = [(number, found) for number, line in enumerate(lines) if (found := _loaded(line)) is not None]
    if not documents:
        return seed
    for _ in range(draw(st.integers(1, 4))):
        number, document = draw(st.sampled_from(documents))
        _change(draw, document)
        lines[number] = json.dumps(document, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    return b"\n".join(lines)


def _loaded(data: bytes) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) and found else None


def _change(draw: DrawFn, document: Any) -> None:
    """Replace, remove, rename or repeat something at any depth."""
    places = [(owner, key) for owner, key in _places(document)]
    if not places:
        return
    owner, key = draw(st.sampled_from(places))
    match draw(st.integers(0, 5)):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, dict):
            owner[draw(st.sampled_from(ODD_TEXTS))] = owner.pop(key)
        case 2 if isinstance(owner[key], str):
            owner[key] += draw(st.sampled_from(ODD_TEXTS))
        case 3:
            owner[key] = [owner[key]]
        case 4:
            owner[key] = draw(st.text(max_size=6))
        case _:
            odd = draw(st.sampled_from(ODD_VALUES))
            owner[key] = json.loads(json.dumps(odd)) if isinstance(odd, dict | list) else odd


def _places(document: Any, depth: int = 12) -> list[tuple[Any, Any]]:
    if not depth:
        return []
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else []
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found += [(document, key), *_places(document[key], depth - 1)]
    return found[:2000]
