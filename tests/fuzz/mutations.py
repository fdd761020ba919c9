"""Mutations of inputs: seeds that are cut, joined, repeated, and have values replaced by unusual ones."""

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


def mutations(seeds: Sequence[bytes], shape: str, words: Sequence[bytes] = ()) -> SearchStrategy[bytes]:
    """Return mutations of the seeds. `shape`: `json` is one JSON document or one per line; `lines` is text; `bytes` is neither."""
    usable_seeds = [seed for seed in seeds if seed] or [b" "]
    edits = _edit_bytes(usable_seeds, (*words, *ODD_BYTES))
    return st.one_of(_change_documents(usable_seeds), edits) if shape == "json" else edits


@st.composite
def _edit_bytes(draw: DrawFn, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Draw a seed with a few edits of its bytes and lines."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 5))):
        at, end = sorted((_position(draw, data), _position(draw, data)))
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
                data = data[:at] + other[_position(draw, other) :]
            case 5:
                lines = data.split(b"\n")
                first, second = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
                lines[first], lines[second] = lines[second], lines[first]
                data = b"\n".join(lines)
            case _:
                data = data[:at]
    return data[: 1 << 16]


REPLACEMENTS: tuple[Any, ...] = (
    None,
    True,
    -1,
    0.5,
    10**40,
    float("nan"),
    "x",
    "\x00",
    "\ud800",
    [],
    {},
    [None],
    [[]],
    [{}],
)


def replace_each_value(seed: bytes) -> Iterator[list[bytes]]:
    """Yield lists of JSON lines, one list per replacement value: each line once per value in it, with that value replaced."""
    for odd in REPLACEMENTS:
        lines: list[bytes] = []
        for line in seed.split(b"\n"):
            begin = max(0, line.find(b"{"))
            document = _load(line[begin:])
            for owner, key in _locations(document):
                before, owner[key] = owner[key], odd
                lines.append(line[:begin] + json.dumps(document).encode())
                owner[key] = before
        yield lines


def _position(draw: DrawFn, data: bytes) -> int:
    return draw(st.integers(0, len(data)))


@st.composite
def _change_documents(draw: DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw a seed with changes in its JSON documents."""
    seed = draw(st.sampled_from(seeds))
    whole_document = _load(seed)
    lines = [seed] if whole_document is not None else seed.split(b"\n")
    documents = [(number, loaded) for number, line in enumerate(lines) if (loaded := _load(line)) is not None]
    if not documents:
        return seed
    for _ in range(draw(st.integers(1, 4))):
        number, document = draw(st.sampled_from(documents))
        _change(draw, document)
        lines[number] = json.dumps(document, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    return b"\n".join(lines)


def _load(data: bytes) -> Any:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict | list) and document else None


def _change(draw: DrawFn, document: Any) -> None:
    """Replace, remove, rename or repeat a value at any depth."""
    locations = [(owner, key) for owner, key in _locations(document)]
    if not locations:
        return
    owner, key = draw(st.sampled_from(locations))
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


def _locations(document: Any, depth: int = 12) -> list[tuple[Any, Any]]:
    if not depth:
        return []
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else []
    locations: list[tuple[Any, Any]] = []
    for key in keys:
        locations += [(document, key), *_locations(document[key], depth - 1)]
    return locations[:2000]
