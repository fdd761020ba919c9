"""Removes secrets from text: known values, and everything that has the format of a token.

A `Redactor` learns the values that must not be shown, each with the name of the variable that holds it; `text`
replaces them by `[secret NAME]`. Common kinds of tokens, private keys and passwords in URLs are recognised by their
format, known or not. Values that are too short or too common (`postgres`, `true`, a path) are never treated as
secrets. A text without secrets is returned unchanged, as the same object. `Stream` does the same for a terminal's
bytes, with as many asterisks as characters, so that the layout of the screen stays.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import quote

T = TypeVar("T")

MARK = "[secret "
"""The beginning of every replacement for a secret."""
SHORTEST = 8
"""Characters that a value must have to be treated as a secret."""
_LONG_WORDS = 24
"""Characters from which a value made of words alone may be a passphrase."""
_MIN_HELD_PREFIX = 4
"""Length of the shortest beginning of a known value for which the end of a terminal's output is held back."""
_LONGEST_TOKEN = 4096
_PIECE_SIZE = 1 << 16
"""Length of the pieces in which a long text is searched."""
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

# Tokens by kind. Each kind has its alphabet and a minimum length, so that the text that follows is not taken as part of the token.
_SHAPES: Mapping[str, str] = {
    "GitHub token": r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255}",
    "GitLab token": r"gl(?:pat|oas|dt|rt|ptt|cbt|imt|ft|agent|soat)-[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9]{2,}){0,2}",
    "API key": r"sk-(?:ant|proj|svcacct|admin|or-v1|None)-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{32,}|AIza[A-Za-z0-9_-]{35}"
    r"|[rs]k_live_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{30,}|SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}",
    "Slack token": r"xox[abceoprs]-[A-Za-z0-9-]{20,}|xapp-\d-[A-Za-z0-9-]{20,}",
    "AWS key": r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
    "Linear key": r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}",
    "Jira token": r"ATATT3[A-Za-z0-9_=-]{50,}",
    "package token": r"npm_[A-Za-z0-9]{36}|pypi-AgEI[A-Za-z0-9_-]{50,}|dckr_pat_[A-Za-z0-9_-]{20,}",
    "token of ours": r"aoc_[A-Za-z0-9_-]{43}|ao[tl]_[0-9a-f]{8}\.[A-Za-z0-9_-]{43}"
    r"|ao[sw]_[\w~@.-]{1,200}\.\d{1,20}\.[A-Za-z0-9_-]{43}|aon_[\w~@.-]{1,200}\.[A-Za-z0-9_-]{43}",
}
_WORD_CHARACTER = "[A-Za-z0-9_-]"
# Tokens whose first part has no maximum length: name, prefix, minimum length after the prefix, and what follows the first part.
_LONG_SHAPES = (
    ("JSON web token", "eyJ", 16, rf"\.eyJ{_WORD_CHARACTER}{{16,}}\.{_WORD_CHARACTER}{{16,}}"),
    ("token of ours", "aoa_", 20, rf"\.{_WORD_CHARACTER}{{43}}"),
)
_BEGINNINGS = tuple(
    text.encode()
    for text in (
        *(
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "glpat-",
            "gloas-",
            "gldt-",
            "glrt-",
            "glptt-",
            "glcbt-",
            "glimt-",
        ),
        *(
            "glft-",
            "glagent-",
            "glsoat-",
            "sk-",
            "AIza",
            "k_live_",
            "hf_",
            "SG.",
            "gsk_",
            "xai-",
            "xox",
            "xapp-",
            "AKIA",
            "ASIA",
        ),
        *(
            "lin_",
            "ATATT3",
            "npm_",
            "pypi-AgEI",
            "dckr_pat_",
            "eyJ",
            "aoa_",
            "aoc_",
            "aot_",
            "aol_",
            "aos_",
            "aow_",
            "aon_",
        ),
    )
)
"""Every token contains one of these. They are searched first, because searching a long line for fixed strings is fast."""
_RUN_LENGTH = 20
"""Every token contains a run of at least this many characters of `_RUN_CHARACTERS`."""
_RUN_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-=~@"
_RUN_TABLE = bytes(0x61 if byte in _RUN_CHARACTERS else 0x20 for byte in range(256))
"""Translation table: a character of a run becomes `a`, any other a space."""
_SHAPE = "|".join(f"(?P<s{number}>{shape})" for number, shape in enumerate(_SHAPES.values()))
_SHAPE_NAMES = tuple(_SHAPES)
_TOKEN_START = r"(?:(?<![A-Za-z0-9])|(?<=[0-9;\[]m)|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-F]{2}))"
"""A token does not begin inside a longer word; but it may follow a colour sequence, or an escaped character in JSON or a URL."""
_TOKEN = re.compile(f"{_TOKEN_START}(?:{_SHAPE})", re.ASCII)
_LONG_TOKENS = tuple(
    (
        name,
        re.compile(
            rf"(?:(?<!{_WORD_CHARACTER})|(?<=\.{_WORD_CHARACTER}{{43}}))(?={_WORD_CHARACTER}{{{least},}}+{rest})"
            rf"(?P<before>{_WORD_CHARACTER}*?){_TOKEN_START}(?P<token>{begins}{_WORD_CHARACTER}{{{least},}}{rest})",
            re.ASCII,
        ),
    )
    for name, begins, least, rest in _LONG_SHAPES
)
"""Matched from the beginning of a word, and only if the text after the word fits: each word is read a few times only, however many
prefixes of tokens it contains."""
_WEBHOOK_URL = re.compile(
    r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}"
    r"|https://(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/[A-Za-z0-9_-]{20,}",
    re.ASCII,
)
_PASSWORD = re.compile(r"://(?P<user>[^\s/:@\"'<>\\?#]{0,200}):(?P<password>[^\s/@\"'<>\\]{1,400})@", re.ASCII)
_KEY_BEGINS, _KEY_ENDS = (
    re.compile(rf"-----{side} (?P<kind>(?:[A-Z0-9]+ ){{0,3}}PRIVATE KEY(?: BLOCK)?)(?=-----)")
    for side in ("BEGIN", "END")
)
_SHORTEST_KEY, _LONGEST_KEY = 40, 20_000
_KEY_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\\r\n"
"""The characters that a private key is written with, line ends included."""
_KEY_RUN = re.compile(rf"[{re.escape(_KEY_CHARACTERS)}]{{{_SHORTEST_KEY},{_LONGEST_KEY}}}")
_BYTE_TOKEN, _BYTE_WEBHOOK_URL, _BYTE_PASSWORD, *_BYTE_LONG_TOKENS = (
    re.compile(shape.pattern.encode(), re.ASCII)
    for shape in (_TOKEN, _WEBHOOK_URL, _PASSWORD, *(joined for _, joined in _LONG_TOKENS))
)
_KEY_ON_TERMINAL = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?P<key>(?:(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\r\n\\]{0,200}"
    rb"|(?<=[\r\n])-(?=[A-Za-z0-9+/=\r\n])|(?<=[\r\n ]) |[A-Za-z0-9+/=\\\r\n\t]){0,20000}+)"
)
"""A private key as far as a terminal has shown it: its headers, and lines that contain no words."""
_LONGEST_LINE = 100
"""Bytes after a key that may still turn out to be its next line."""
_KEY_LINE = re.compile(r"(\A|\r\n?|\n|\\r(?:\\n)?|\\n)([ +-]?)((?:[^\r\n\\]|\\++(?![rn]))+)")
_PLACEHOLDER = re.compile(
    r"[$%{<*\[(].*|x+|X+|\.+|(?:my|your|the|some|a)?[-_]?(?:password|passwd|pass|pwd|pw|secret|token|key|credentials)\d?",
    re.I,
)
_OPENING = re.compile(
    rb"(?<![A-Za-z0-9])(?=(?P<opening>[A-Za-z]{2,10}://[^\s/:@]{0,100}:|gh[pousr]_|github_pat_|gl[a-z]{2,5}-|sk-|AIza|[rs]k_live_|hf_|gsk_"
    rb"|xai-|xox[a-z]-|xapp-|AKIA|ASIA|lin_|ATATT3|npm_|pypi-|dckr_pat_|eyJ|ao[aclnstw]_|SG\."
    rb"|https://(?:hooks\.slack\.com|(?:\w{1,20}\.)?discord(?:app)?\.com/api)/[A-Za-z0-9/_-]{0,60}))"
)
"""The beginnings of tokens, and of URLs with a password."""
_LONGEST_OPENING = 114
_CONTINUATION = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.=~%!$&*+-"
"""The characters that may follow such a beginning within the token or URL."""
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
"""Escape sequences, which a terminal interprets and does not show."""


def ordinary(value: str, name: str = "") -> bool:
    """Return whether a value is too short or too common to be treated as a secret; `name` is the variable that holds
    it.
    """
    value = value.strip()
    if len(value) < SHORTEST or _NUMBER.fullmatch(value):
        return True
    if address := _ADDRESS.fullmatch(value):
        userinfo, at, _ = address[1].rpartition("@")
        return not (at and (":" in userinfo or len(userinfo) >= 16)) and not any(
            map(_looks_random, _SEGMENT.findall(address[2]))
        )
    if _FOLDER.match(value):
        return not any(map(_looks_random, _SEGMENT.findall(value)))
    if len(value) >= _LONG_WORDS:
        return False
    if _WORDS.fullmatch(value):
        return value == value.lower() or value == value.upper() or value == value.title()
    is_secret_name = any(word in name.upper() for word in _SECRET_NAME_PARTS)
    return not is_secret_name and _WORDS_AND_NUMBERS.fullmatch(value) is not None


def _looks_random(text: str) -> bool:
    """Return whether a text looks generated: it has lower and upper case letters and digits, or digits and at least 24 characters."""
    kinds = (any(map(str.islower, text)), any(map(str.isupper, text)), any(map(str.isdigit, text)))
    return sum(kinds) == 3 or (kinds[2] and len(text) >= 24)


def shaped(value: str) -> bool:
    """Return whether a value has the format of a token, or contains a password or private key."""
    return Redactor().text(value) != value


class Redactor:
    """Replaces secrets in texts. Reading is thread-safe."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._forms: tuple[tuple[str, str], ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self._short: tuple[bytes, ...] = ()
        """Known values that a text may contain without having a long run of token characters."""
        self._names: dict[str, str] = {}
        self.learn(secrets or {})

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Add secrets (name → value); common values are skipped. No value is ever removed: an old value is still a secret."""
        names_by_spelling: dict[str, str] = {}
        for name, value in secrets.items():
            for line in _lines_of(value):
                if not ordinary(line, name):
                    names_by_spelling |= dict.fromkeys(_spellings(line), name)
        if new_names := {spelling: name for spelling, name in names_by_spelling.items() if spelling not in self._names}:
            self._names = {**self._names, **new_names}
            # Longest first, as one value may be part of another.
            self._forms = tuple(sorted(self._names.items(), key=lambda item: -len(item[0])))
            self._bytes = tuple(spelling.encode(errors="surrogateescape") for spelling, _ in self._forms)
            self._short = tuple(
                spelling for spelling in self._bytes if len(spelling) < _RUN_LENGTH or spelling.strip(_RUN_CHARACTERS)
            )

    @property
    def known(self) -> tuple[bytes, ...]:
        """Return every known value, in all its spellings."""
        return self._bytes

    def text(self, text: str) -> str:
        """Return the text with secrets replaced; the same object if there are none."""
        if not self.suspects(text.encode(errors="surrogatepass")):
            return text
        clean = text
        for spelling, name in self._forms:
            clean = clean.replace(spelling, f"[secret {name}]")
        clean = _replace_shapes(clean)
        return text if clean == text else clean

    def data(self, data: bytes) -> bytes:
        """Return the bytes with secrets replaced; bytes that are not valid text stay as they are."""
        if not self.suspects(data):
            return data
        text = data.decode(errors="surrogateescape")
        clean = self.text(text)
        return data if clean is text else clean.encode(errors="surrogateescape")

    def tree(self, value: T, keep: Collection[str] = ()) -> T:
        """Return a dataclass or JSON data with secrets replaced in every text, except below the names in `keep`. Keys stay."""
        texts: list[str] = []
        _collect_texts(value, keep, texts)
        if not texts or not self.suspects("\n".join(texts).encode(errors="surrogatepass")):
            return value
        changed: T = _map_texts(value, self.text, keep)
        return changed

    def suspects(self, data: bytes) -> bool:
        """Return whether the data may contain a secret; fast, and false in most cases."""
        if any(spelling in data for spelling in self._short):
            return True
        if b"://" in data and (_BYTE_PASSWORD.search(data) or _BYTE_WEBHOOK_URL.search(data)):
            return True
        if b" PRIVATE KEY" in data:
            return True
        for start, end in _find_runs(data):
            run = data[start:end]
            if any(spelling in run for spelling in self._bytes):
                return True
            if any(beginning in run for beginning in _BEGINNINGS) and any(
                shape.search(data, start, end) for shape in (_BYTE_TOKEN, *_BYTE_LONG_TOKENS)
            ):
                return True
        return False

    def stream(self) -> Stream:
        """Return a filter for a terminal's output that comes in pieces."""
        return Stream(self)

    def lines(self, tell: Callable[[str], None]) -> Lines:
        """Return a filter for a program's output that comes line by line; `tell` gets each line."""
        return Lines(self, tell)


KNOWN = Redactor()
"""The redactor of this process: it knows the daemon's secrets, and those that its plugins found."""


class Stream:
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
    def holds(self) -> bool:
        """Return whether some output is held back."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Take some output and return what may be shown: of it, and of what was held back before."""
        return self._release(data, whole=False)

    def rest(self) -> bytes:
        """Return what is held back, once the output has ended."""
        return self._release(b"", whole=True)

    def _release(self, data: bytes, *, whole: bool) -> bytes:
        """Return what of the held and the new bytes may be shown, with secrets covered. With `whole`, hold nothing back."""
        start, buffer = len(self._released), self._released + self._held + data
        visible = _SEQUENCE.sub(b"", buffer) if b"\x1b" in buffer else buffer
        flat = visible.replace(b"\r", b"").replace(b"\n", b"")
        is_suspect = self._redactor.suspects(flat) or (flat != visible and self._redactor.suspects(visible))
        ranges = [*self._find_known(flat)] if is_suspect else []
        tokens = [*_find_tokens(visible)] if is_suspect else []
        keys = [*_KEY_ON_TERMINAL.finditer(visible)] if is_suspect else []
        held_length = 0 if whole else self._held_suffix_length(flat)
        unfinished_from = len(visible) if whole else _unfinished_from(visible)
        out = buffer
        end = len(buffer)
        key_from = end
        if ranges or tokens or keys or held_length or unfinished_from < len(visible):
            positions = _visible_positions(buffer)
            positions_in_lines = [position for position in positions if buffer[position] not in b"\r\n"]
            covered_positions = {
                positions_in_lines[index] for first, last in ranges for index in range(first, last)
            } | {positions[index] for first, last in tokens for index in range(first, last)}
            for key in keys:
                if key.end() == len(visible) or len(key["key"].strip()) >= 16:
                    covered_positions.update(
                        positions[index] for index in range(*key.span("key")) if visible[index] not in b"\r\n\t "
                    )
                if len(visible) - key.end() < _LONGEST_LINE:
                    key_from = positions[key.start()]
            if held_length:
                end = min(end, positions_in_lines[-held_length])
            if unfinished_from < len(positions):
                end = min(end, positions[unfinished_from])
            covered = bytearray(buffer)
            for position in covered_positions:
                covered[position] = 0x2A
            out, end = bytes(covered), max(end, start)
        if len(buffer) - end > _LONGEST_TOKEN:
            end = len(buffer)
        self._held = buffer[end:]
        before_start = max(0, end - 2 * max(map(len, self._redactor.known), default=0) - 512)
        self._released = buffer[min(before_start, key_from) : end]
        return out[start:end]

    def _find_known(self, flat: bytes) -> Iterator[tuple[int, int]]:
        """Yield where known values begin and end."""
        for spelling in self._redactor.known:
            index = flat.find(spelling)
            while index >= 0:
                yield index, index + len(spelling)
                index = flat.find(spelling, index + 1)

    def _held_suffix_length(self, flat: bytes) -> int:
        """Return the number of bytes at the end with which a known value begins."""
        longest = 0
        for spelling in self._redactor.known:
            tail = flat[-(len(spelling) - 1) :]
            index = tail.find(spelling[:_MIN_HELD_PREFIX])
            while index >= 0:
                if spelling.startswith(tail[index:]):
                    longest = max(longest, len(tail) - index)
                    break
                index = tail.find(spelling[:_MIN_HELD_PREFIX], index + 1)
        return longest


class Lines:
    """Filter for the lines of a program's output: `tell` gets them without secrets, also such as span several lines.

    Many lines are searched at a time. A line whose end may be the beginning of a secret is emitted with the next
    one.
    """

    def __init__(self, redactor: Redactor, tell: Callable[[str], None]) -> None:
        self._secrets = redactor.stream()
        self._emit = tell
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
            self._emit_lines(self._secrets.feed(batch))

    def rest(self) -> None:
        """Emit everything, also what is held back, once the output has ended."""
        self.flush()
        self._emit_lines(self._secrets.rest())

    def _emit_lines(self, data: bytes) -> None:
        """Emit each complete line of the data, and keep the incomplete one."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._emit(line.decode(errors="replace"))


def _find_tokens(visible: bytes) -> Iterator[tuple[int, int]]:
    """Yield where tokens and passwords begin and end in what a terminal shows."""
    yield from (match.span() for match in _BYTE_TOKEN.finditer(visible))
    yield from (match.span("token") for pattern in _BYTE_LONG_TOKENS for match in pattern.finditer(visible))
    if b"://" in visible:
        yield from (match.span() for match in _BYTE_WEBHOOK_URL.finditer(visible))
        for match in _BYTE_PASSWORD.finditer(visible):
            if not _PLACEHOLDER.fullmatch(match["password"].decode(errors="replace")):
                yield match.span("password")


def _unfinished_from(visible: bytes) -> int:
    """Return where an end of the output begins that may be the beginning of a token, or the output's length if there is none."""
    stable_length = len(visible.rstrip(_CONTINUATION))
    search_start = max(0, len(visible) - _LONGEST_TOKEN, stable_length - _LONGEST_OPENING)
    unfinished = (
        opening for opening in _OPENING.finditer(visible, search_start) if opening.end("opening") >= stable_length
    )
    return next((opening.start() for opening in unfinished), len(visible))


def _visible_positions(buffer: bytes) -> list[int]:
    """Return the position in the buffer of each byte that the terminal shows."""
    positions: list[int] = []
    position = 0
    for sequence in _SEQUENCE.finditer(buffer):
        positions += range(position, sequence.start())
        position = sequence.end()
    positions += range(position, len(buffer))
    return positions


def _find_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where long runs of token characters begin and end."""
    shape = data.translate(_RUN_TABLE)
    start = shape.find(b"a" * _RUN_LENGTH)
    while start >= 0:
        end = shape.find(b" ", start)
        end = len(data) if end < 0 else end
        yield start, end
        start = shape.find(b"a" * _RUN_LENGTH, end)


def _replace_shapes(text: str) -> str:
    """Replace everything in a text that has the format of a token, password or private key."""
    text = "".join(map(_replace_tokens, _split_text(text))) if len(text) > _PIECE_SIZE else _replace_tokens(text)
    return _replace_key_ends(_replace_keys(text)) if " PRIVATE KEY-----" in text or " KEY BLOCK-----" in text else text


def _split_text(text: str) -> Iterator[str]:
    """Yield a long text in pieces, cut at spaces, where no token is: other threads can run between two pieces."""
    start = 0
    while (end := text.find(" ", start + _PIECE_SIZE)) >= 0:
        yield text[start:end]
        start = end
    yield text[start:]


def _replace_tokens(text: str) -> str:
    """Replace tokens, webhook URLs and passwords in URLs."""
    for name, pattern in _LONG_TOKENS:
        text = pattern.sub(rf"\g<before>[secret {name}]", text)
    text = _TOKEN.sub(_token_replacement, text)
    if "://" in text:
        text = _PASSWORD.sub(_password_replacement, _WEBHOOK_URL.sub("[secret webhook address]", text))
    return text


def _token_replacement(match: re.Match[str]) -> str:
    """Return the replacement for a token that `_TOKEN` matched."""
    return f"[secret {_SHAPE_NAMES[int((match.lastgroup or 's0')[1:])]}]"


def _password_replacement(match: re.Match[str]) -> str:
    """Return a URL's beginning with its password replaced, or unchanged if the password is a placeholder."""
    if _PLACEHOLDER.fullmatch(match["password"]):
        return match[0]
    return f"://{match['user']}:[secret password]@"


def _replace_keys(text: str) -> str:
    """Replace each private key, from its beginning to the first end of its kind, or, if the end was cut off, as far as
    the text looks like a key.

    The ends are searched once, so that a text with many beginnings is not read more often.
    """
    ends: dict[str, list[int]] = {}
    for end in _KEY_ENDS.finditer(text):
        ends.setdefault(end["kind"], []).append(end.start())
    pieces, copied = [], 0
    for begin in _KEY_BEGINS.finditer(text):
        key_start, ends_of_kind = begin.end() + len("-----"), ends.get(begin["kind"], [])
        index = bisect_left(ends_of_kind, key_start + _SHORTEST_KEY)
        if begin.start() < copied:
            continue
        if index < len(ends_of_kind) and ends_of_kind[index] <= key_start + _LONGEST_KEY:
            stop = ends_of_kind[index]
        elif key_match := _KEY_RUN.match(text, key_start):
            stop = key_match.end()
        else:
            continue
        pieces += [text[copied:key_start], _KEY_LINE.sub(_replace_key_line, text[key_start:stop])]
        copied = stop
    return "".join([*pieces, text[copied:]])


def _replace_key_ends(text: str) -> str:
    """Replace the text before an end of a key whose beginning was cut off, as far as it looks like a key."""
    pieces: list[str] = []
    copied = previous_end = 0
    for end in _KEY_ENDS.finditer(text):
        text_before = text[max(previous_end, end.start() - _LONGEST_KEY) : end.start()]
        previous_end = end.end()
        key_length = len(text_before) - len(text_before.rstrip(_KEY_CHARACTERS))
        if key_length >= _SHORTEST_KEY:
            begin = end.start() - key_length
            pieces += [text[copied:begin], _KEY_LINE.sub(_replace_key_line, text[begin : end.start()])]
            copied = end.start()
    return "".join([*pieces, text[copied:]])


def _replace_key_line(match: re.Match[str]) -> str:
    """Return a replacement for one line of a key, so that a diff keeps its number of lines; headers such as `Proc-Type` go too."""
    content = match[3].strip()
    return (
        match[0]
        if len(content) < 4 or content == "[secret private key]"
        else f"{match[1]}{match[2]}[secret private key]"
    )


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


def _collect_texts(value: Any, keep: Collection[str], texts: list[str]) -> None:
    """Append every text in a dataclass or JSON data to `texts`, except below the names in `keep`."""
    if isinstance(value, str):
        texts.append(value)
    elif value is None or isinstance(value, int | float):
        return
    elif isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            _collect_texts(inner, keep, texts)
    elif hasattr(value, "__dataclass_fields__"):
        for name in _field_names(cast("Hashable", type(value))):
            if name not in keep:
                _collect_texts(getattr(value, name), keep, texts)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in keep:
                _collect_texts(inner, keep, texts)


def with_texts(value: T, change: Callable[[str], str]) -> T:
    """Return a dataclass or JSON data with `change` applied to every text in it; keys stay."""
    changed: T = _map_texts(value, change, ())
    return changed


def _map_texts(value: Any, clean: Callable[[str], str], keep: Collection[str]) -> Any:
    """Return a dataclass or JSON data with `clean` applied to every text, except below the names in `keep`."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: inner if name in keep else _map_texts(inner, clean, keep) for name, inner in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return type(value)(_map_texts(inner, clean, keep) for inner in value)
    if hasattr(value, "__dataclass_fields__"):
        old_values = {
            name: getattr(value, name) for name in _field_names(cast("Hashable", type(value))) if name not in keep
        }
        new_values = {name: _map_texts(inner, clean, keep) for name, inner in old_values.items()}
        changed = {name: inner for name, inner in new_values.items() if inner != old_values[name]}
        return replace(value, **changed) if changed else value
    return value


@cache
def _field_names(kind: Hashable) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(field.name for field in fields(cast("Any", kind)))
