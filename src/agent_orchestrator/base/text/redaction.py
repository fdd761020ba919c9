"""Takes secrets out of text: values that are known, and whatever has the shape of a token.

A `Redactor` is told the values that must not be shown, each with the name of what holds it; `text` puts `[secret NAME]` in their
place. Tokens of well-known makes, private keys and passwords in addresses are recognised by their shape, known or not. Values that
are too short or too ordinary (`postgres`, `true`, a path) are never taken for secrets: text that has none comes back as it was, the
very same object. `Stream` does the same for a terminal's bytes, with as many asterisks, so that nothing moves on the screen.
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
"""What every text in a secret's place begins with."""
SHORTEST = 8
"""Characters that a value must have to be taken for a secret."""
_LONG_WORDS = 24
"""Characters from which words alone may be a passphrase."""
_TELLING = 4
"""Characters at the end of a terminal's output that are held back because a known value begins with them."""
_LONGEST_TOKEN = 4096
_PIECE = 1 << 16
_MANY_LINES = 1 << 13
"""Bytes of lines that are looked through at a time."""

_STRONG = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "PASS", "PWD")
_WORDS = re.compile(r"[A-Za-z]*(?:[-_. /:@+,][A-Za-z]*)*")
_WORDS_AND_NUMBERS = re.compile(r"(?:[A-Za-z]*\d{0,4})(?:[-_. /:@+,][A-Za-z]*\d{0,4})*")
_NUMBER = re.compile(r"[-+\d.,:/ eExX_]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s]*)(.*)", re.DOTALL)
_FOLDER = re.compile(r"(?:~|\.{0,2})/|[A-Za-z]:[\\/]")
_SEGMENT = re.compile(r"[^/?#&=.]{16,}")
_BETWEEN = re.compile(r"[/?#&=@:]+")

# Tokens by their make. What follows them in a text is never part of them by chance: each has its alphabet and its least length.
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
_WORD = "[A-Za-z0-9_-]"
# Tokens whose first word has no greatest length: its name, how it begins, how long it is at least after that, and what follows it.
_JOINED = (
    ("JSON web token", "eyJ", 16, rf"\.eyJ{_WORD}{{16,}}\.{_WORD}{{16,}}"),
    ("token of ours", "aoa_", 20, rf"\.{_WORD}{{43}}"),
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
"""One of these is in every token: looked for first, for a long line is soon searched for a few words."""
_RUN = 20
"""Characters that every token has in a row, of those that tokens are made of."""
_RUN_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-=~@"
_IS_RUN = bytes(0x61 if byte in _RUN_CHARACTERS else 0x20 for byte in range(256))
_SHAPE = "|".join(f"(?P<s{number}>{shape})" for number, shape in enumerate(_SHAPES.values()))
_SHAPE_NAMES = tuple(_SHAPES)
_APART = r"(?:(?<![A-Za-z0-9])|(?<=[0-9;\[]m)|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-F]{2}))"
"""A token is no end of a longer word; a colour, or what JSON and addresses write for a character, is none."""
_TOKEN = re.compile(f"{_APART}(?:{_SHAPE})", re.ASCII)
_JOINED_TOKENS = tuple(
    (
        name,
        re.compile(
            rf"(?:(?<!{_WORD})|(?<=\.{_WORD}{{43}}))(?={_WORD}{{{least},}}+{rest})"
            rf"(?P<before>{_WORD}*?){_APART}(?P<token>{begins}{_WORD}{{{least},}}{rest})",
            re.ASCII,
        ),
    )
    for name, begins, least, rest in _JOINED
)
"""Looked for from where a word begins, and only if what follows the word fits: each word is read a few times, however often a token
seems to begin in it."""
_HOOK = re.compile(
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
"""What a key is written with, its ends of lines included."""
_KEY_RUN = re.compile(rf"[{re.escape(_KEY_CHARACTERS)}]{{{_SHORTEST_KEY},{_LONGEST_KEY}}}")
_BYTE_TOKEN, _BYTE_HOOK, _BYTE_PASSWORD, *_BYTE_JOINED = (
    re.compile(shape.pattern.encode(), re.ASCII)
    for shape in (_TOKEN, _HOOK, _PASSWORD, *(joined for _, joined in _JOINED_TOKENS))
)
_KEY_SHOWN = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?P<key>(?:(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\r\n\\]{0,200}"
    rb"|(?<=[\r\n])-(?=[A-Za-z0-9+/=\r\n])|(?<=[\r\n ]) |[A-Za-z0-9+/=\\\r\n\t]){0,20000}+)"
)
"""A private key as far as a terminal has shown it: lines without words, and its headers."""
_LONGEST_LINE = 100
"""Bytes behind it that may yet turn out to be its next line."""
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
"""What a token, or an address with a password, begins with."""
_LONGEST_OPENING = 114
_GOES_ON = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.=~%!$&*+-"
"""What they go on with."""
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
"""What a terminal obeys and does not show."""


def ordinary(value: str, name: str = "") -> bool:
    """Is a value too short or too common to be taken for a secret, whatever it is called?"""
    value = value.strip()
    if len(value) < SHORTEST or _NUMBER.fullmatch(value):
        return True
    if address := _ADDRESS.fullmatch(value):
        person, at, _ = address[1].rpartition("@")
        return not (at and (":" in person or len(person) >= 16)) and not any(map(_random, _SEGMENT.findall(address[2])))
    if _FOLDER.match(value):
        return not any(map(_random, _SEGMENT.findall(value)))
    if len(value) >= _LONG_WORDS:
        return False
    if _WORDS.fullmatch(value):
        return value == value.lower() or value == value.upper() or value == value.title()
    strong = any(word in name.upper() for word in _STRONG)
    return not strong and _WORDS_AND_NUMBERS.fullmatch(value) is not None


def _random(text: str) -> bool:
    """Does it look as nobody would have chosen it?"""
    kinds = (any(map(str.islower, text)), any(map(str.isupper, text)), any(map(str.isdigit, text)))
    return sum(kinds) == 3 or (kinds[2] and len(text) >= 24)


def shaped(value: str) -> bool:
    """Has a value the shape of a token, or a password or private key in it?"""
    return Redactor().text(value) != value


class Redactor:
    """Knows what must not be shown. Reading is safe from any thread."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._forms: tuple[tuple[str, str], ...] = ()
        self._bytes: tuple[bytes, ...] = ()
        self._short: tuple[bytes, ...] = ()
        """Those that a text without a long run of token characters may have in it, too."""
        self._names: dict[str, str] = {}
        self.learn(secrets or {})

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Take in secrets by their names; what is ordinary is passed over. Nothing is ever forgotten: an old value is a secret still."""
        found: dict[str, str] = {}
        for name, value in secrets.items():
            for part in _parts(value):
                if not ordinary(part, name):
                    found |= dict.fromkeys(_forms(part), name)
        if new := {form: name for form, name in found.items() if form not in self._names}:
            self._names = {**self._names, **new}
            # The longest first: one value may be a part of another.
            self._forms = tuple(sorted(self._names.items(), key=lambda one: -len(one[0])))
            self._bytes = tuple(form.encode(errors="surrogateescape") for form, _ in self._forms)
            self._short = tuple(form for form in self._bytes if len(form) < _RUN or form.strip(_RUN_CHARACTERS))

    @property
    def known(self) -> tuple[bytes, ...]:
        """Every known value, as it may be written."""
        return self._bytes

    def text(self, text: str) -> str:
        """The text without secrets; the same object where there are none."""
        if not self.suspects(text.encode(errors="surrogatepass")):
            return text
        clean = text
        for form, name in self._forms:
            clean = clean.replace(form, f"[secret {name}]")
        clean = _without_shapes(clean)
        return text if clean == text else clean

    def data(self, data: bytes) -> bytes:
        """The same for bytes, of which those that are no text stay as they are."""
        if not self.suspects(data):
            return data
        text = data.decode(errors="surrogateescape")
        clean = self.text(text)
        return data if clean is text else clean.encode(errors="surrogateescape")

    def tree(self, value: T, keep: Collection[str] = ()) -> T:
        """A dataclass or JSON data with the same done to every text in it, but those under a name in `keep`. Keys stay."""
        texts: list[str] = []
        _collect(value, keep, texts)
        if not texts or not self.suspects("\n".join(texts).encode(errors="surrogatepass")):
            return value
        changed: T = _mapped(value, self.text, keep)
        return changed

    def suspects(self, data: bytes) -> bool:
        """Might there be a secret? Quick, and most often no."""
        if any(form in data for form in self._short):
            return True
        if b"://" in data and (_BYTE_PASSWORD.search(data) or _BYTE_HOOK.search(data)):
            return True
        if b" PRIVATE KEY" in data:
            return True
        for start, end in _runs(data):
            run = data[start:end]
            if any(form in run for form in self._bytes):
                return True
            if any(one in run for one in _BEGINNINGS) and any(
                shape.search(data, start, end) for shape in (_BYTE_TOKEN, *_BYTE_JOINED)
            ):
                return True
        return False

    def stream(self) -> Stream:
        """For a terminal's output that comes piece by piece."""
        return Stream(self)

    def lines(self, tell: Callable[[str], None]) -> Lines:
        """For a program's output that comes line by line."""
        return Lines(self, tell)


KNOWN = Redactor()
"""What this process knows: the daemon's secrets, and those that its plugins found."""


class Stream:
    """A terminal's bytes without secrets: asterisks in their place, one for each character.

    Escape sequences and line ends inside a value, as a narrow screen makes them, do not hide it. Only an end that may be the
    beginning of a secret is held back, until more comes or `rest` is asked for; what was let go is remembered, so that the rest of a
    secret that came in pieces is still covered.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""
        """What was let go last, as it came."""
        self._held = b""

    @property
    def holds(self) -> bool:
        """Is something held back?"""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Take some output; returns what may be shown of it, and of what was held back."""
        return self._let_go(data, whole=False)

    def rest(self) -> bytes:
        """What is held back: nothing more came."""
        return self._let_go(b"", whole=True)

    def _let_go(self, data: bytes, *, whole: bool) -> bytes:
        start, buffer = len(self._before), self._before + self._held + data
        shown = _SEQUENCE.sub(b"", buffer) if b"\x1b" in buffer else buffer
        flat = shown.replace(b"\r", b"").replace(b"\n", b"")
        suspect = self._redactor.suspects(flat) or (flat != shown and self._redactor.suspects(shown))
        ranges = [*self._known_in(flat)] if suspect else []
        tokens = [*_tokens(shown)] if suspect else []
        keys = [*_KEY_SHOWN.finditer(shown)] if suspect else []
        held = 0 if whole else self._may_begin(flat)
        unfinished = len(shown) if whole else _unfinished(shown)
        out = buffer
        end = len(buffer)
        key_from = end
        if ranges or tokens or keys or held or unfinished < len(shown):
            every = _positions(buffer)
            in_lines = [place for place in every if buffer[place] not in b"\r\n"]
            marks = {in_lines[n] for a, b in ranges for n in range(a, b)} | {
                every[n] for a, b in tokens for n in range(a, b)
            }
            for key in keys:
                if key.end() == len(shown) or len(key["key"].strip()) >= 16:
                    marks.update(every[n] for n in range(*key.span("key")) if shown[n] not in b"\r\n\t ")
                if len(shown) - key.end() < _LONGEST_LINE:
                    key_from = every[key.start()]
            if held:
                end = min(end, in_lines[-held])
            if unfinished < len(every):
                end = min(end, every[unfinished])
            covered = bytearray(buffer)
            for place in marks:
                covered[place] = 0x2A
            out, end = bytes(covered), max(end, start)
        if len(buffer) - end > _LONGEST_TOKEN:
            end = len(buffer)
        self._held = buffer[end:]
        before = max(0, end - 2 * max(map(len, self._redactor.known), default=0) - 512)
        self._before = buffer[min(before, key_from) : end]
        return out[start:end]

    def _known_in(self, flat: bytes) -> Iterator[tuple[int, int]]:
        for form in self._redactor.known:
            at = flat.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = flat.find(form, at + 1)

    def _may_begin(self, flat: bytes) -> int:
        """Bytes at the end that a known value begins with."""
        longest = 0
        for form in self._redactor.known:
            tail = flat[-(len(form) - 1) :]
            at = tail.find(form[:_TELLING])
            while at >= 0:
                if form.startswith(tail[at:]):
                    longest = max(longest, len(tail) - at)
                    break
                at = tail.find(form[:_TELLING], at + 1)
        return longest


class Lines:
    """Lines of a program's output without secrets, also such as take several. They are looked through many at a time; a line whose end
    may be the beginning of a secret is told with the next."""

    def __init__(self, redactor: Redactor, tell: Callable[[str], None]) -> None:
        self._secrets = redactor.stream()
        self._tell = tell
        self._given = bytearray()
        self._line = b""

    def feed(self, line: str) -> None:
        """Take a line; it is told with others."""
        self._given += f"{line}\n".encode(errors="replace")
        if len(self._given) >= _MANY_LINES:
            self.flush()

    def flush(self) -> None:
        """Tell what there is now."""
        given = bytes(self._given)
        self._given.clear()
        if given:
            self._take(self._secrets.feed(given))

    def rest(self) -> None:
        """Tell what is held back, too: nothing more came."""
        self.flush()
        self._take(self._secrets.rest())

    def _take(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._tell(line.decode(errors="replace"))


def _tokens(shown: bytes) -> Iterator[tuple[int, int]]:
    """Where tokens and passwords are in what a terminal shows."""
    yield from (found.span() for found in _BYTE_TOKEN.finditer(shown))
    yield from (found.span("token") for joined in _BYTE_JOINED for found in joined.finditer(shown))
    if b"://" in shown:
        yield from (found.span() for found in _BYTE_HOOK.finditer(shown))
        for found in _BYTE_PASSWORD.finditer(shown):
            if not _PLACEHOLDER.fullmatch(found["password"].decode(errors="replace")):
                yield found.span("password")


def _unfinished(shown: bytes) -> int:
    """Where the end of some output begins that may be the beginning of a token; its length, if there is none."""
    rest = len(shown.rstrip(_GOES_ON))
    first = max(0, len(shown) - _LONGEST_TOKEN, rest - _LONGEST_OPENING)
    found = (one for one in _OPENING.finditer(shown, first) if one.end("opening") >= rest)
    return next((one.start() for one in found), len(shown))


def _positions(buffer: bytes) -> list[int]:
    """Where in the buffer each byte is that the terminal shows."""
    found: list[int] = []
    at = 0
    for sequence in _SEQUENCE.finditer(buffer):
        found += range(at, sequence.start())
        at = sequence.end()
    found += range(at, len(buffer))
    return found


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where long runs of token characters begin and end."""
    shape = data.translate(_IS_RUN)
    at = shape.find(b"a" * _RUN)
    while at >= 0:
        end = shape.find(b" ", at)
        end = len(data) if end < 0 else end
        yield at, end
        at = shape.find(b"a" * _RUN, end)


def _without_shapes(text: str) -> str:
    text = "".join(map(_without_tokens, _pieces(text))) if len(text) > _PIECE else _without_tokens(text)
    return (
        _without_ends_of_keys(_without_keys(text)) if " PRIVATE KEY-----" in text or " KEY BLOCK-----" in text else text
    )


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces, cut where no token is: other threads have their turn in between."""
    at = 0
    while (end := text.find(" ", at + _PIECE)) >= 0:
        yield text[at:end]
        at = end
    yield text[at:]


def _without_tokens(text: str) -> str:
    for name, joined in _JOINED_TOKENS:
        text = joined.sub(rf"\g<before>[secret {name}]", text)
    text = _TOKEN.sub(_token, text)
    if "://" in text:
        text = _PASSWORD.sub(_password, _HOOK.sub("[secret webhook address]", text))
    return text


def _token(found: re.Match[str]) -> str:
    return f"[secret {_SHAPE_NAMES[int((found.lastgroup or 's0')[1:])]}]"


def _password(found: re.Match[str]) -> str:
    if _PLACEHOLDER.fullmatch(found["password"]):
        return found[0]
    return f"://{found['user']}:[secret password]@"


def _without_keys(text: str) -> str:
    """Each private key covered, from its beginning to the first end of its kind; where that was cut off, as far as it looks like one.

    The ends are found once: whoever writes many beginnings has the text read no more often.
    """
    ends: dict[str, list[int]] = {}
    for end in _KEY_ENDS.finditer(text):
        ends.setdefault(end["kind"], []).append(end.start())
    pieces, at = [], 0
    for begin in _KEY_BEGINS.finditer(text):
        key, of_kind = begin.end() + len("-----"), ends.get(begin["kind"], [])
        place = bisect_left(of_kind, key + _SHORTEST_KEY)
        if begin.start() < at:
            continue
        if place < len(of_kind) and of_kind[place] <= key + _LONGEST_KEY:
            stop = of_kind[place]
        elif run := _KEY_RUN.match(text, key):
            stop = run.end()
        else:
            continue
        pieces += [text[at:key], _KEY_LINE.sub(_key_line, text[key:stop])]
        at = stop
    return "".join([*pieces, text[at:]])


def _without_ends_of_keys(text: str) -> str:
    """Covers what stands before an end whose beginning was cut off, as far as it looks like a key."""
    pieces: list[str] = []
    at = last = 0
    for end in _KEY_ENDS.finditer(text):
        before = text[max(last, end.start() - _LONGEST_KEY) : end.start()]
        last = end.end()
        key = len(before) - len(before.rstrip(_KEY_CHARACTERS))
        if key >= _SHORTEST_KEY:
            begin = end.start() - key
            pieces += [text[at:begin], _KEY_LINE.sub(_key_line, text[begin : end.start()])]
            at = end.start()
    return "".join([*pieces, text[at:]])


def _key_line(line: re.Match[str]) -> str:
    """Line for line, so that a diff keeps its count; headers such as `Proc-Type` go too."""
    content = line[3].strip()
    return (
        line[0] if len(content) < 4 or content == "[secret private key]" else f"{line[1]}{line[2]}[secret private key]"
    )


def address_parts(address: str) -> list[str]:
    """An address, and what may be secret in it by itself: tokens stand anywhere in those of chat services."""
    return [address, *_BETWEEN.split(address.partition("://")[2])]


def _parts(value: str) -> list[str]:
    """A value of several lines is as many secrets: whoever shows it may show it line by line. Short ones count where none is long."""
    lines = [line.strip() for line in value.strip().splitlines()]
    return [line for line in lines if len(line) >= 16 and not line.startswith("-----")] or lines


def _forms(value: str) -> set[str]:
    """How a value may be written: as it is, in JSON, in an address."""
    quoted = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    try:
        quoted |= {quote(value, safe=""), quote(value)}
    except UnicodeEncodeError:
        pass
    return {value, *quoted}


def _collect(value: Any, keep: Collection[str], texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif value is None or isinstance(value, int | float):
        return
    elif isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            _collect(inner, keep, texts)
    elif hasattr(value, "__dataclass_fields__"):
        for name in _names(cast("Hashable", type(value))):
            if name not in keep:
                _collect(getattr(value, name), keep, texts)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in keep:
                _collect(inner, keep, texts)


def with_texts(value: T, change: Callable[[str], str]) -> T:
    """A dataclass or JSON data with every text in it changed; keys stay."""
    changed: T = _mapped(value, change, ())
    return changed


def _mapped(value: Any, clean: Callable[[str], str], keep: Collection[str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: inner if name in keep else _mapped(inner, clean, keep) for name, inner in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return type(value)(_mapped(inner, clean, keep) for inner in value)
    if hasattr(value, "__dataclass_fields__"):
        was = {name: getattr(value, name) for name in _names(cast("Hashable", type(value))) if name not in keep}
        now = {name: _mapped(inner, clean, keep) for name, inner in was.items()}
        changed = {name: inner for name, inner in now.items() if inner != was[name]}
        return replace(value, **changed) if changed else value
    return value


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(one.name for one in fields(cast("Any", kind)))
