"""Removes secrets from text: known values, and everything that has the format of a token.

A `Redactor` learns the values that must not be shown, each with the name of the variable that holds it; `text`
replaces them by `[secret NAME]`. Common kinds of tokens, private keys and passwords in URLs are recognised by their
format, known or not. Values that are too short or too common (`postgres`, `true`, a path) are never treated as
secrets. A text without secrets is returned unchanged, as the same object. `TerminalRedactor` does the same for a terminal's
bytes, with as many asterisks as characters, so that the layout of the screen stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from urllib.parse import quote

from agent_orchestrator.base.text.secret_formats import (
    KEY_ON_TERMINAL,
    MAX_TOKEN_BYTES,
    MIN_RUN_LENGTH,
    RUN_CHARACTERS,
    find_runs,
    find_tokens,
    find_unfinished_token,
    has_secret_url,
    has_token,
    replace_shapes,
)
from agent_orchestrator.base.text.text_trees import T, collect_texts, map_texts

REPLACEMENT_PREFIX = "[secret "
"""The beginning of every replacement for a secret."""
MIN_SECRET_LENGTH = 8
"""Characters that a value must have to be treated as a secret."""
_MIN_PASSPHRASE_LENGTH = 24
"""Characters from which a value made of words alone may be a passphrase."""
_MIN_HELD_PREFIX = 4
"""Length of the shortest beginning of a known value for which the end of a terminal's output is held back."""
_LINE_BATCH = 1 << 13
"""Bytes of lines that are searched at a time."""

_SECRET_NAME_PARTS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "PASS", "PWD")
"""Parts of a variable's name that mark its value as a secret, even one made of a word and digits."""
_WORDS = re.compile(r"[A-Za-z]*(?:[-_. /:@+,][A-Za-z]*)*")
_WORDS_AND_NUMBERS = re.compile(r"(?:[A-Za-z]*\d{0,4})(?:[-_. /:@+,][A-Za-z]*\d{0,4})*")
_NUMBER = re.compile(r"[-+\d.,:/ eExX_]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]*)(.*)", re.DOTALL)
_FOLDER = re.compile(r"(?:~|\.{0,2})/|[A-Za-z]:[\\/]")
_SEGMENT = re.compile(r"[^/?#&=.]{16,}")
_SEPARATORS = re.compile(r"[/?#&=@:]+")
_KEY_LOOKAHEAD_BYTES = 100
"""Bytes after a key that may still turn out to be its next line."""
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
"""Escape sequences, which a terminal interprets and does not show."""

_STRING_BEGIN = re.compile(rb"\x1b[PX]")
"""Sequences that begin a string with a letter, which is not a part of the string's first word."""


def is_ordinary(value: str, name: str = "") -> bool:
    """Return whether a value is too short or too common to be treated as a secret; `name` is the variable that holds
    it.
    """
    value = value.strip()
    if len(value) < MIN_SECRET_LENGTH or _NUMBER.fullmatch(value):
        return True
    if address := _ADDRESS.fullmatch(value):
        userinfo, at, _ = address[1].rpartition("@")
        return not (at and (":" in userinfo or len(userinfo) >= 16)) and not any(
            map(_looks_random, _SEGMENT.findall(address[2]))
        )
    if _FOLDER.match(value):
        return not any(map(_looks_random, _SEGMENT.findall(value)))
    if len(value) >= _MIN_PASSPHRASE_LENGTH:
        return False
    if _WORDS.fullmatch(value):
        return value == value.lower() or value == value.upper() or value == value.title()
    is_secret_name = any(word in name.upper() for word in _SECRET_NAME_PARTS)
    return not is_secret_name and _WORDS_AND_NUMBERS.fullmatch(value) is not None


def _looks_random(text: str) -> bool:
    """Return whether a text looks generated: it has lower and upper case letters and digits, or digits and at least 24 characters."""
    kinds = (any(map(str.islower, text)), any(map(str.isupper, text)), any(map(str.isdigit, text)))
    return sum(kinds) == 3 or (kinds[2] and len(text) >= 24)


def has_secret_format(value: str) -> bool:
    """Return whether a value has the format of a token, or contains a password or private key."""
    return Redactor().redact_text(value) != value


class Redactor:
    """Replaces secrets in texts. Reading is thread-safe."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._forms: tuple[tuple[str, str], ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self._values_without_long_run: tuple[bytes, ...] = ()
        """Known values that a text may contain without having a long run of token characters."""
        self._names: dict[str, str] = {}
        self.learn(secrets or {})

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Add secrets (name → value); common values are skipped. No value is ever removed: an old value is still a secret."""
        names_by_spelling: dict[str, str] = {}
        for name, value in secrets.items():
            for line in _lines_of(value):
                if not is_ordinary(line, name):
                    names_by_spelling |= dict.fromkeys(_spellings(line), name)
        if new_names := {spelling: name for spelling, name in names_by_spelling.items() if spelling not in self._names}:
            self._names = {**self._names, **new_names}
            # Longest first, as one value may be part of another.
            self._forms = tuple(sorted(self._names.items(), key=lambda item: -len(item[0])))
            self._bytes = tuple(spelling.encode(errors="surrogateescape") for spelling, _ in self._forms)
            self._values_without_long_run = tuple(
                spelling for spelling in self._bytes if len(spelling) < MIN_RUN_LENGTH or spelling.strip(RUN_CHARACTERS)
            )

    @property
    def spellings(self) -> tuple[bytes, ...]:
        """Every secret value that is known, in all its spellings."""
        return self._bytes

    def redact_text(self, text: str) -> str:
        """Return the text with secrets replaced; the same object if there are none."""
        if not self.may_contain_secret(text.encode(errors="surrogatepass")):
            return text
        clean = text
        for spelling, name in self._forms:
            clean = clean.replace(spelling, f"[secret {name}]")
        clean = replace_shapes(clean)
        return text if clean == text else clean

    def redact_bytes(self, data: bytes) -> bytes:
        """Return the bytes with secrets replaced; bytes that are not valid text stay as they are."""
        if not self.may_contain_secret(data):
            return data
        text = data.decode(errors="surrogateescape")
        clean = self.redact_text(text)
        return data if clean is text else clean.encode(errors="surrogateescape")

    def redact_tree(self, value: T, keep: Collection[str] = ()) -> T:
        """Return a dataclass or JSON data with secrets replaced in every text, except below the names in `keep`. Keys stay."""
        texts: list[str] = []
        collect_texts(value, keep, texts)
        if not texts or not self.may_contain_secret("\n".join(texts).encode(errors="surrogatepass")):
            return value
        return map_texts(value, self.redact_text, keep)

    def may_contain_secret(self, data: bytes) -> bool:
        """Return whether the data may contain a secret; fast, and false in most cases."""
        if any(spelling in data for spelling in self._values_without_long_run):
            return True
        if has_secret_url(data) or b" PRIVATE KEY" in data:
            return True
        for start, end in find_runs(data):
            run = data[start:end]
            if any(spelling in run for spelling in self._bytes) or has_token(data, start, end):
                return True
        return False

    def terminal_filter(self) -> TerminalRedactor:
        """Return a filter for a terminal's output that comes in pieces."""
        return TerminalRedactor(self)

    def line_filter(self, emit: Callable[[str], None]) -> LineRedactor:
        """Return a filter for a program's output that comes line by line; `emit` gets each line."""
        return LineRedactor(self, emit)


REDACTOR = Redactor()
"""The redactor of this process: it knows the daemon's secrets, and those that its plugins found."""


class TerminalRedactor:
    """Filter for a terminal's bytes: each character of a secret becomes an asterisk.

    Escape sequences and line ends inside a value, which a narrow screen adds, do not hide it. Only an end of the
    output that may be the beginning of a secret is held back, until more comes or `rest` is called. Output that was
    already released is remembered, so that the rest of a secret that came in pieces is still covered.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._released = b""
        """The last bytes that were released, as they came."""
        self._held = b""

    @property
    def has_held_output(self) -> bool:
        """Return whether some output is held back."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Take some output and return what may be shown: of it, and of what was held back before."""
        return self._release(data, whole=False)

    def finish(self) -> bytes:
        """Return what is held back, once the output has ended."""
        return self._release(b"", whole=True)

    def _release(self, data: bytes, *, whole: bool) -> bytes:
        """Return what of the held and the new bytes may be shown, with secrets covered. With `whole`, hold nothing back."""
        start, buffer = len(self._released), self._released + self._held + data
        visible = _SEQUENCE.sub(b"", buffer) if b"\x1b" in buffer else buffer
        flat = visible.replace(b"\r", b"").replace(b"\n", b"")
        is_suspect = self._redactor.may_contain_secret(flat) or (
            flat != visible and self._redactor.may_contain_secret(visible)
        )
        ranges = [*self._find_known(flat)] if is_suspect else []
        tokens = [*find_tokens(visible)] if is_suspect else []
        keys = [*KEY_ON_TERMINAL.finditer(visible)] if is_suspect else []
        held_length = 0 if whole else self._held_suffix_length(flat)
        unfinished_from = len(visible) if whole else find_unfinished_token(visible)
        has_sequences = len(visible) < len(buffer)
        # A sequence may contain a secret, such as a window's title, or end with a secret's first character.
        as_written = [*self._find_as_written(buffer)] if has_sequences else []
        written_from = self._unfinished_as_written(buffer) if has_sequences and not whole else len(buffer)
        out = buffer
        end = len(buffer)
        key_from = end
        is_found = ranges or tokens or keys or as_written
        if is_found or held_length or unfinished_from < len(visible) or written_from < len(buffer):
            positions = _visible_positions(buffer)
            positions_in_lines = [position for position in positions if buffer[position] not in b"\r\n"]
            covered_positions = {
                positions_in_lines[index] for first, last in ranges for index in range(first, last)
            } | {positions[index] for first, last in tokens for index in range(first, last)}
            covered_positions.update(position for first, last in as_written for position in range(first, last))
            for key in keys:
                if key.end() == len(visible) or len(key["key"].strip()) >= 16:
                    covered_positions.update(
                        positions[index] for index in range(*key.span("key")) if visible[index] not in b"\r\n\t "
                    )
                if len(visible) - key.end() < _KEY_LOOKAHEAD_BYTES:
                    key_from = positions[key.start()]
            if held_length:
                end = min(end, positions_in_lines[-held_length])
            if unfinished_from < len(positions):
                end = min(end, positions[unfinished_from])
            end = min(end, written_from)
            covered = bytearray(buffer)
            for position in covered_positions:
                covered[position] = 0x2A
            out, end = bytes(covered), max(end, start)
        if len(buffer) - end > MAX_TOKEN_BYTES:
            end = len(buffer)
        self._held = buffer[end:]
        before_start = max(0, end - 2 * max(map(len, self._redactor.spellings), default=0) - 512)
        self._released = buffer[min(before_start, key_from) : end]
        return out[start:end]

    def _find_known(self, flat: bytes) -> Iterator[tuple[int, int]]:
        """Yield where known values begin and end."""
        for spelling in self._redactor.spellings:
            index = flat.find(spelling)
            while index >= 0:
                yield index, index + len(spelling)
                index = flat.find(spelling, index + 1)

    def _find_as_written(self, buffer: bytes) -> Iterator[tuple[int, int]]:
        """Yield where secrets begin and end in the output with its escape sequences."""
        text = _STRING_BEGIN.sub(b"\x1b ", buffer)
        if self._redactor.may_contain_secret(buffer) or self._redactor.may_contain_secret(text):
            yield from self._find_known(buffer)
            yield from find_tokens(text)

    def _unfinished_as_written(self, buffer: bytes) -> int:
        """Return where an end of the output with its escape sequences begins that may be the beginning of a secret."""
        text = _STRING_BEGIN.sub(b"\x1b ", buffer)
        return min(len(buffer) - self._held_suffix_length(buffer), find_unfinished_token(text))

    def _held_suffix_length(self, flat: bytes) -> int:
        """Return the number of bytes at the end with which a known value begins."""
        longest = 0
        for spelling in self._redactor.spellings:
            tail = flat[-(len(spelling) - 1) :]
            index = tail.find(spelling[:_MIN_HELD_PREFIX])
            while index >= 0:
                if spelling.startswith(tail[index:]):
                    longest = max(longest, len(tail) - index)
                    break
                index = tail.find(spelling[:_MIN_HELD_PREFIX], index + 1)
        return longest


class LineRedactor:
    """Filter for the lines of a program's output: `emit` gets them without secrets, also such as span several lines.

    Many lines are searched at a time. A line whose end may be the beginning of a secret is emitted with the next one.
    """

    def __init__(self, redactor: Redactor, emit: Callable[[str], None]) -> None:
        self._terminal_filter = redactor.terminal_filter()
        self._emit = emit
        self._batch = bytearray()
        self._line = b""

    def feed(self, line: str) -> None:
        """Take a line; it is emitted together with others."""
        self._batch += f"{line}\n".encode(errors="replace")
        if len(self._batch) >= _LINE_BATCH:
            self.flush()

    def flush(self) -> None:
        """Emit the lines taken so far."""
        batch = bytes(self._batch)
        self._batch.clear()
        if batch:
            self._emit_lines(self._terminal_filter.feed(batch))

    def finish(self) -> None:
        """Emit everything, also what is held back, once the output has ended."""
        self.flush()
        self._emit_lines(self._terminal_filter.finish())

    def _emit_lines(self, data: bytes) -> None:
        """Emit each complete line of the data, and keep the incomplete one."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._emit(line.decode(errors="replace"))


def _visible_positions(buffer: bytes) -> list[int]:
    """Return the position in the buffer of each byte that the terminal shows."""
    positions: list[int] = []
    position = 0
    for sequence in _SEQUENCE.finditer(buffer):
        positions += range(position, sequence.start())
        position = sequence.end()
    positions += range(position, len(buffer))
    return positions


def address_parts(address: str) -> list[str]:
    """Return a URL and its parts that may be secret by themselves: the URLs of chat services contain tokens anywhere."""
    return [address, *_SEPARATORS.split(address.partition("://")[2])]


def _lines_of(value: str) -> list[str]:
    """Return the lines of a value, each of which is a secret: a value may be shown line by line. Short lines count
    only if there is no long one.
    """
    lines = [line.strip() for line in value.strip().splitlines()]
    return [line for line in lines if len(line) >= 16 and not line.startswith("-----")] or lines


def _spellings(value: str) -> set[str]:
    """Return how a value may be written: as it is, in JSON, in a URL."""
    spellings = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    try:
        spellings |= {quote(value, safe=""), quote(value)}
    except UnicodeEncodeError:
        pass
    return {value, *spellings}
