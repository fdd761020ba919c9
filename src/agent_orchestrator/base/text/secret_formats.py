"""The formats of secrets: tokens, private keys, webhook URLs and passwords in URLs.

`redaction.py` covers what is found here, and the values that it knows. To have another kind of token recognised, add its
format to `_SHAPES`, and its beginning to `_BEGINNINGS` and `_OPENING`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping

MAX_TOKEN_BYTES = 4096
"""Length in bytes of the longest token that is recognised in a terminal's output."""
_PIECE_SIZE = 1 << 16
"""Length of the pieces in which a long text is searched."""

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
MIN_RUN_LENGTH = 20
"""Every token contains a run of at least this many characters of `RUN_CHARACTERS`."""
RUN_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-=~@"
_RUN_TABLE = bytes(0x61 if byte in RUN_CHARACTERS else 0x20 for byte in range(256))
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
_MIN_KEY_LENGTH, _MAX_KEY_LENGTH = 40, 20_000
_KEY_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\\r\n"
"""The characters that a private key is written with, line ends included."""
_KEY_RUN = re.compile(rf"[{re.escape(_KEY_CHARACTERS)}]{{{_MIN_KEY_LENGTH},{_MAX_KEY_LENGTH}}}")
_BYTE_TOKEN, _BYTE_WEBHOOK_URL, _BYTE_PASSWORD, *_BYTE_LONG_TOKENS = (
    re.compile(shape.pattern.encode(), re.ASCII)
    for shape in (_TOKEN, _WEBHOOK_URL, _PASSWORD, *(joined for _, joined in _LONG_TOKENS))
)
KEY_ON_TERMINAL = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?P<key>(?:(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): [^\r\n\\]{0,200}"
    rb"|(?<=[\r\n])-(?=[A-Za-z0-9+/=\r\n])|(?<=[\r\n ]) |[A-Za-z0-9+/=\\\r\n\t]){0,20000}+)"
)
"""A private key as far as a terminal has shown it: its headers, and lines that contain no words."""
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
_MAX_OPENING_BYTES = 114
_CONTINUATION = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.=~%!$&*+-"
"""The characters that may follow such a beginning within the token or URL."""


def find_tokens(visible: bytes) -> Iterator[tuple[int, int]]:
    """Yield where tokens and passwords begin and end in what a terminal shows."""
    yield from (match.span() for match in _BYTE_TOKEN.finditer(visible))
    yield from (match.span("token") for pattern in _BYTE_LONG_TOKENS for match in pattern.finditer(visible))
    if b"://" in visible:
        yield from (match.span() for match in _BYTE_WEBHOOK_URL.finditer(visible))
        for match in _BYTE_PASSWORD.finditer(visible):
            if not _PLACEHOLDER.fullmatch(match["password"].decode(errors="replace")):
                yield match.span("password")


def find_unfinished_token(visible: bytes) -> int:
    """Return where an end of the output begins that may be the beginning of a token, or the output's length if there is none."""
    stable_length = len(visible.rstrip(_CONTINUATION))
    search_start = max(0, len(visible) - MAX_TOKEN_BYTES, stable_length - _MAX_OPENING_BYTES)
    unfinished = (
        opening for opening in _OPENING.finditer(visible, search_start) if opening.end("opening") >= stable_length
    )
    return next((opening.start() for opening in unfinished), len(visible))


def has_secret_url(data: bytes) -> bool:
    """Return whether the data contains a URL with a password, or the URL of a webhook."""
    return b"://" in data and bool(_BYTE_PASSWORD.search(data) or _BYTE_WEBHOOK_URL.search(data))


def has_token(data: bytes, start: int, end: int) -> bool:
    """Return whether the run of token characters from `start` to `end` contains a token."""
    run = data[start:end]
    return any(beginning in run for beginning in _BEGINNINGS) and any(
        shape.search(data, start, end) for shape in (_BYTE_TOKEN, *_BYTE_LONG_TOKENS)
    )


def find_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where long runs of token characters begin and end."""
    shape = data.translate(_RUN_TABLE)
    start = shape.find(b"a" * MIN_RUN_LENGTH)
    while start >= 0:
        end = shape.find(b" ", start)
        end = len(data) if end < 0 else end
        yield start, end
        start = shape.find(b"a" * MIN_RUN_LENGTH, end)


def replace_shapes(text: str) -> str:
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
        index = bisect_left(ends_of_kind, key_start + _MIN_KEY_LENGTH)
        if begin.start() < copied:
            continue
        if index < len(ends_of_kind) and ends_of_kind[index] <= key_start + _MAX_KEY_LENGTH:
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
        text_before = text[max(previous_end, end.start() - _MAX_KEY_LENGTH) : end.start()]
        previous_end = end.end()
        key_length = len(text_before) - len(text_before.rstrip(_KEY_CHARACTERS))
        if key_length >= _MIN_KEY_LENGTH:
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
