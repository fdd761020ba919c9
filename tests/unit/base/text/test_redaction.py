"""Redaction: secrets are removed from text, and text without one stays the same to the byte."""

from __future__ import annotations

import json
import random
import re
import string
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_orchestrator.base.text.redaction import Redactor, has_secret_format, is_ordinary

PASSWORD = "zK4+vT9m/Qw2"
TOKEN = "Qm7RtYx2LpW9sVb4NcZ8kJh3"
RSA = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        *("MIIEpAIBAAKCAQEA7n5k" * 3 for _ in range(4)),
        "-----END RSA PRIVATE KEY-----",
    ]
)
LETTERS = string.ascii_letters + string.digits
SHAPES = {
    "GitHub token": ["ghp_" + "a1B2" * 9, "github_pat_" + "11ABCDEFG0" * 8 + "ab"],
    "GitLab token": ["glpat-" + "a1B2" * 5, "glrt-" + "xY9_" * 5],
    "API key": ["sk-ant-api03-" + "aB3-" * 10, "sk-proj-" + "aB3_" * 12, "sk-" + "aB3d" * 12, "AIza" + "a1B2c" * 7],
    "Slack token": ["xoxb-123456789012-abcdefABCDEF123456"],
    "AWS key": ["AKIAIOSFODNN7EXAMPLE"],
    "Linear key": ["lin_api_" + "a1B2" * 10],
    "Jira token": ["ATATT3" + "xFfGF0" * 12],
    "package token": ["npm_" + "a1B2" * 9],
    "JSON web token": ["eyJhbGciOiJIUzI1NiIsInR5cCI6.eyJzdWIiOiIxMjM0NTY3ODkwIiwi.SflKxwRJSMeKKF2QT4fwpM"],
    "token of ours": [
        "aoc_" + "a1B2c" * 8 + "xyz",
        "aot_0123abcd." + "a1B2c" * 8 + "xyz",
        "aos_app-fix.3." + "a1B2c" * 8 + "xyz",
        "aos_app-v1.2.3." + "a1B2c" * 8 + "xyz",
        "aow_app-fix.3." + "a1B2c" * 8 + "xyz",
    ],
    "webhook address": ["https://hooks.slack.com/services/T00000000/B00000000/aBcDeFgHiJkLmNoPqRsTuVwX"],
}


@pytest.fixture
def redactor() -> Redactor:
    return Redactor({"DB_PASSWORD": PASSWORD, "FORGE_TOKEN": TOKEN})


@pytest.mark.parametrize(("kind", "token"), [(kind, token) for kind, tokens in SHAPES.items() for token in tokens])
@pytest.mark.parametrize(
    "around", ["{}", "key={}", '"{}",', "Bearer {}\n", "({})", "> {}.", "+{}", "\x1b[31m{}\x1b[0m"]
)
def test_tokens_are_recognized_by_their_shape(kind: str, token: str, around: str) -> None:
    clean = Redactor().redact_text(around.format(token))
    assert token not in clean and f"[secret {kind}]" in clean
    assert clean.replace(f"[secret {kind}]", "").strip(".") in (around.format(""), around.format("").strip("."))
    assert Redactor().redact_bytes(around.format(token).encode()) == clean.encode()
    for before in ("\n", "\t", "\x1b[1m", "é", "\x1b[m"):
        for ascii_only in (True, False):
            assert token not in Redactor().redact_text(json.dumps(f"a{before}{token}", ensure_ascii=ascii_only))


@pytest.mark.parametrize(
    "text",
    [
        "git rebase --onto main feature/issue-123 && task-ant-farm-is-a-longer-name-than-one-thinks",
        "pip install sk-learn; the risk-aversion of sk-nothing; xoxo; npm_config_registry=https://registry.npmjs.org",
        "commit 8ab9f83c1d2e4f5a6b7c8d9e0f1a2b3c4d5e6f70 in refs/ao/rescue/app-fix-login",
        "postgres://user:$PASSWORD@db/app https://user:password@example.com ssh://git@github.com:22/x http://h:80/a@b",
        "AKIA is how they begin, AKIAIOSFODNN7EXAMPL is too short, AKIAIOSFODNN7EXAMPLES too long",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= eyJ0eXAi.no",
        "[secret GITHUB_TOKEN] was here, https://u:[secret password]@host",
    ],
)
def test_text_that_only_resembles_a_secret_stays(redactor: Redactor, text: str) -> None:
    assert redactor.redact_text(text) is text
    assert redactor.redact_bytes(raw := text.encode()) is raw


@pytest.mark.parametrize(
    "value",
    [
        *(
            "main",
            "true",
            "false",
            "postgres",
            "development",
            "localhost",
            "/usr/local/bin/tool",
            "~/.config/app",
            "12345678901",
        ),
        *(
            "feature/issue-12",
            "http://localhost:8080/x",
            "2026-11-16",
            "1.2.3",
            "changeme",
            "us-east-1",
            "my-app-frontend",
        ),
    ],
)
def test_ordinary_values_are_never_secrets(value: str) -> None:
    for name in ("DB_PASSWORD", "API_KEY", "SESSION_SECRET"):
        if name == "API_KEY" or value in (
            "main",
            "true",
            "postgres",
            "localhost",
            "development",
            "changeme",
            "12345678901",
        ):
            assert is_ordinary(value, name), name
    text = f"switch to {value}, then {value}"
    assert Redactor({"SORT_KEY": value}).redact_text(text) is text


@pytest.mark.parametrize(
    "value",
    [PASSWORD, TOKEN, "hunter2-hunter2!", "correct-horse-battery-staple", "Tr0ub4dor&3", "0123456789abcdef01234567"],
)
def test_a_long_or_random_value_of_a_secret_variable_is_a_secret(value: str) -> None:
    assert Redactor({"DB_PASSWORD": value}).redact_text(f"a {value} b") == "a [secret DB_PASSWORD] b"


def test_a_value_is_recognized_in_json_and_in_url_encoding() -> None:
    value = 'p"ä\\ß/7+xy z'
    redactor = Redactor({"ODD_SECRET": value})
    for form in (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        "p%22%C3%A4%5C%C3%9F%2F7%2Bxy%20z",
    ):
        assert redactor.redact_text(f"<{form}>") == "<[secret ODD_SECRET]>"


def test_a_multiline_value_is_redacted_in_any_notation() -> None:
    redactor = Redactor({"DB_PASSWORD": "hunter-2x\nother+pw99\n", "A_TOKEN": "long-enough-to-be-one\nshort-1x"})
    for form in (
        "hunter-2x\nother+pw99",
        "+hunter-2x\n+other+pw99",
        json.dumps("hunter-2x\nother+pw99"),
        "other+pw99",
    ):
        clean = redactor.redact_text(form)
        assert "hunter" not in clean and "pw99" not in clean, clean
    assert redactor.redact_text("short-1x") == "short-1x"


def test_the_longer_of_two_values_goes_first() -> None:
    redactor = Redactor({"SHORT_TOKEN": TOKEN[:16], "LONG_TOKEN": TOKEN})
    assert redactor.redact_text(f"{TOKEN} {TOKEN[:16]}") == "[secret LONG_TOKEN] [secret SHORT_TOKEN]"


def test_learned_values_are_added_to_the_previous_ones(redactor: Redactor) -> None:
    redactor.learn({"FORGE_TOKEN": "Zz8Yy7Xx6Ww5Vv4Uu3Tt2Ss1"})
    assert redactor.redact_text(f"{TOKEN} Zz8Yy7Xx6Ww5Vv4Uu3Tt2Ss1") == "[secret FORGE_TOKEN] [secret FORGE_TOKEN]"


def test_a_private_key_is_redacted_line_by_line() -> None:
    diff = "@@ -0,0 +1,7 @@\n" + "".join(f"+{line}\n" for line in ("before", *RSA.splitlines(), "after"))
    clean = Redactor().redact_text(diff)
    assert "MII" not in clean and len(clean.splitlines()) == len(diff.splitlines())
    assert all(line.startswith(("+", "@")) for line in clean.splitlines())
    assert "+before" in clean and "+after" in clean and "-----BEGIN RSA PRIVATE KEY-----" in clean
    keyed = Redactor({"DEPLOY_KEY": RSA})
    assert "MII" not in keyed.redact_text(json.dumps(RSA)) and "MII" not in keyed.redact_text(RSA.splitlines()[2])
    assert "MII" not in Redactor().redact_text(json.dumps({"key": RSA}))


@pytest.mark.parametrize("between", ["\n", "\r\n", "\r", "\\n", "\\r\\n", "\\r", "\\\\n", " ", ""])
@pytest.mark.parametrize("slash", ["/", "\\/", "\\u002f", "\\\\/"])
def test_a_private_key_is_redacted_in_any_notation(between: str, slash: str) -> None:
    key = between.join(f"MIIEp{slash}MIIBAAKC{slash}MIIEA7n5k" for _ in range(4))
    begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
    for text in (f"{begin}{key}{end}", f"{begin}{between}{key}{between}{end}", f"{begin} {key}{between}{end}"):
        clean = Redactor().redact_text(text)
        assert "MII" not in clean and clean.startswith(begin) and clean.endswith(end)
        assert clean.count("[secret private key]") == (4 if between.strip(" ") else 1)
        assert Redactor().redact_text(clean) == clean


KINDS = ["PRIVATE KEY", "RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
MODEL = re.compile(
    r"-----BEGIN (?P<kind>(?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----)(?P<key>.{40,20000}?)-----END (?P=kind)",
    re.DOTALL,
)
"""Matches a private key: the shortest definition, and by far not the fastest."""


@given(
    st.lists(
        st.sampled_from(
            [
                *(f"-----BEGIN {kind}-----" for kind in KINDS),
                *(f"-----END {kind}-----" for kind in KINDS),
                *("\n", "\\n", "k3y!" * 5 + "\n", "k3y!" * 20, "k3y!" * 1_500, "word"),
            ]
        ),
        max_size=12,
    ).map("".join)
)
@example(f"-----BEGIN {KINDS[0]}-----\n{'k3y!' * 5_000}-----END {KINDS[0]}-----")
@example(f"-----BEGIN {KINDS[0]}-----{'k3y!' * 5_000}-----END {KINDS[0]}-----")
@example(f"-----BEGIN {KINDS[0]}-----{'k3y!' * 10}-----END {KINDS[0]}-----")
@example(f"-----BEGIN {KINDS[0]}-----{'x' * 39}-----END {KINDS[0]}-----{'k3y!' * 9}-----END {KINDS[0]}-----")
def test_a_private_key_is_redacted_up_to_the_first_end_of_its_kind(text: str) -> None:
    assert Redactor().redact_text(text) == MODEL.sub(lambda match: Redactor().redact_text(match[0]), text)


@pytest.mark.parametrize("between", ["\n", "\r\n", "\\n", "\n+"])
def test_a_private_key_without_its_begin_or_end_is_redacted_too(between: str) -> None:
    begin, *lines, end = RSA.split("\n")
    first, last = between.join(["see:", begin, *lines]), between.join([*lines, end, "see: above"])
    for text in (first, f"{first}{between}and so on", last, f"so: {last}"):
        clean = Redactor().redact_text(text)
        assert "MIIE" not in clean and clean.count("[secret private key]") == len(lines), clean
    for text in (first, last):
        assert "see:" in Redactor().redact_text(text)


def test_two_keys_that_share_their_dashes_are_both_redacted() -> None:
    kind, key = KINDS[1], "k3y!" * 20
    clean = Redactor().redact_text(
        f"-----BEGIN {kind}-----{key}-----END {kind}-----BEGIN {kind}-----{key}-----END {kind}-----"
    )
    covered = f"-----BEGIN {kind}-----[secret private key]-----END {kind}"
    assert clean == f"{covered}{covered}-----"


JOINED = {
    "JSON web token": "eyJhbGciOiJIUzI1NiIsInR5cCI6.eyJzdWIiOiIxMjM0NTY3ODkwIiwi.SflKxwRJSMeKKF2QT4fwpM",
    "token of ours": "aoa_" + "a1B2" * 40 + "." + "a1B2c" * 8 + "xyz",
}


@pytest.mark.parametrize(("kind", "token"), JOINED.items())
@pytest.mark.parametrize("before", ["-", "--", "_", "X-", "\x1b[0m", "\\n", "%0A", "a.b-", "eyJ.", ".", "+"])
def test_a_long_token_is_recognized_inside_a_word(kind: str, token: str, before: str) -> None:
    assert Redactor().redact_text(f"{before}{token} {token}") == f"{before}[secret {kind}] [secret {kind}]"
    covered = Redactor().terminal_filter().feed(f"{before}{token} \n".encode())
    assert covered == before.encode() + b"*" * len(token) + b" \n"


def test_adjacent_answer_tokens_are_all_redacted() -> None:
    answer = JOINED["token of ours"]
    assert Redactor().redact_text(f"{answer}-{answer}/{answer}") == "{0}-{0}/{0}".format("[secret token of ours]")


def test_a_long_text_is_redacted_wherever_it_is_split() -> None:
    token, url = SHAPES["GitHub token"][0], "https://me:s3cr3t-p4ss@h/"
    clean = Redactor().redact_text(f"{token} {url} word " * 4_000)
    assert clean == "[secret GitHub token] https://me:[secret password]@h/ word " * 4_000


# -- texts written to slow redaction down ---------------------------------------------------------------------------------------

SLOW_TEXTS = {
    **{f"beginnings of a key, {kind}": (f"-----BEGIN {kind}-----\n", "") for kind in KINDS},
    "beginnings and another's end": ("-----BEGIN PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----"),
    "a key's words": ("-----BEGIN A1 A1 A1 ", "PRIVATE KEY"),
    "ends of keys": ("-----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----"),
    "web tokens": ("-eyJ", ""),
    "web tokens with an end of another kind": ("-eyJ", "." + "a" * 43),
    "web tokens with their end": ("-eyJ", ".eyJ" + "a" * 16 + "." + "a" * 16),
    "parts of web tokens": ("-eyJ" + "a" * 16 + ".eyJ", ""),
    "answers": ("-aoa_", ""),
    "answers with an end of another kind": ("-aoa_", ".eyJ" + "a" * 16 + "." + "a" * 16),
    "answers with their end": ("-aoa_", "." + "a" * 43),
    "sessions": ("-aos_a.1.", ""),
    "nodes": ("-aon_.", ""),
    "makes": ("-ghp_-sk-ant-_xoxb-.glpat-~npm_", "/"),
    "addresses": ("a://b:", ""),
    "passwords": ("://u:$p@", ""),
    "hooks": ("https://hooks.slack.com/services/", ""),
    "escapes": ("\x1b]\x1b[0;\x1bP", ""),
    "quotes": ("\\n\"'", " PRIVATE KEY"),
    "keys without an end": ("-----BEGIN PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7n5k\n" * 900, ""),
}


@pytest.mark.parametrize("name", SLOW_TEXTS)
def test_redaction_time_is_bounded_for_any_text(name: str) -> None:
    """Each text takes a second at most, and many seconds if the work grows with the square of the length."""
    unit, end = SLOW_TEXTS[name]
    size = 4_000_000 if "PRIVATE KEY" in unit else 500_000  # a key has a greatest length, so that it takes more of them
    text = unit * (size // len(unit)) + end
    begun = time.thread_time()
    Redactor().redact_text(text)
    assert time.thread_time() - begun < 8


@pytest.mark.parametrize("name", SLOW_TEXTS)
def test_redaction_time_of_a_terminals_output_is_bounded(name: str) -> None:
    unit, end = SLOW_TEXTS[name]
    data = (unit * (200_000 // len(unit)) + end).encode()
    stream = Redactor({"FORGE_TOKEN": TOKEN}).terminal_filter()
    begun = time.thread_time()
    for at in range(0, len(data), 500):
        stream.feed(data[at : at + 499] + b"/")
    assert time.thread_time() - begun < 10


def test_a_password_in_a_url_is_a_secret() -> None:
    assert has_secret_format("https://me:s3cr3t@example.com/x.git") and not has_secret_format(
        "https://example.com/x.git"
    )
    clean = Redactor().redact_text("fatal: 'http://me:s3cr3t@h:8080/x' not found")
    assert clean == "fatal: 'http://me:[secret password]@h:8080/x' not found"


@dataclass(frozen=True)
class Inner:
    text: str
    number: int = 0


@dataclass(frozen=True)
class Outer:
    path: str
    inner: Inner
    more: tuple[str, ...] = ()
    data: dict[str, object] = field(default_factory=dict)


def test_dataclasses_are_copied_only_if_they_hold_a_secret(redactor: Redactor) -> None:
    clean = Outer(f"/{TOKEN}", Inner("plain"), ("a",), {"n": 1, "deep": [{"x": None}]})
    assert redactor.redact_tree(clean, ("path",)) is clean
    dirty = Outer(f"/{TOKEN}", Inner(f"says {TOKEN}", 7), ("a", PASSWORD), {"n": 1, "deep": [{TOKEN: TOKEN}]})
    redacted = redactor.redact_tree(dirty, ("path",))
    assert redacted == Outer(
        f"/{TOKEN}",
        Inner("says [secret FORGE_TOKEN]", 7),
        ("a", "[secret DB_PASSWORD]"),
        {"n": 1, "deep": [{TOKEN: "[secret FORGE_TOKEN]"}]},
    )


# -- properties --------------------------------------------------------------------------------------------------------

WORDS = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(["ghp_", "sk-", "://", "aos_", "-----BEGIN ", "eyJ", "main", "\n", "@", "\x1b[0m", ":"]),
    ),
    max_size=30,
).map("".join)


@given(WORDS)
@example("://a:b@")
def test_text_without_a_secret_is_the_same_to_the_byte(text: str) -> None:
    redactor = Redactor({"DB_PASSWORD": PASSWORD, "FORGE_TOKEN": TOKEN})
    clean = redactor.redact_text(text)
    if not has_secret_format(text):
        assert clean is text
    assert redactor.redact_text(clean) == clean
    raw = text.encode(errors="surrogatepass")
    assert redactor.redact_bytes(raw).decode(errors="surrogatepass") == clean


@given(st.binary(max_size=300))
def test_bytes_that_are_no_text_stay(raw: bytes) -> None:
    assert Redactor({"DB_PASSWORD": PASSWORD}).redact_bytes(raw) == raw
    assert (
        Redactor({"DB_PASSWORD": PASSWORD}).redact_bytes(raw + PASSWORD.encode() + raw)
        == raw + b"[secret DB_PASSWORD]" + raw
    )


@given(WORDS, WORDS, st.sampled_from([PASSWORD, TOKEN, *(tokens[0] for tokens in SHAPES.values())]))
def test_a_secret_is_found_between_any_words(before: str, after: str, secret: str) -> None:
    redactor = Redactor({"DB_PASSWORD": PASSWORD, "FORGE_TOKEN": TOKEN})
    assert secret not in redactor.redact_text(f"{before} {secret} {after}")


@given(
    WORDS,
    WORDS,
    st.sampled_from([PASSWORD, TOKEN, SHAPES["GitHub token"][0], SHAPES["API key"][0]]),
    st.integers(0, 2**32),
)
@example("\x1b", "", PASSWORD, 0)
def test_a_secret_in_terminal_output_becomes_asterisks_wherever_it_is_split(
    before: str, after: str, secret: str, seed: int
) -> None:
    stream = Redactor({"DB_PASSWORD": PASSWORD, "FORGE_TOKEN": TOKEN}).terminal_filter()
    raw = f"{before} {secret}\n{after} ".encode(errors="replace")
    chooser, output, at = random.Random(seed), b"", 0
    while at < len(raw):
        step = chooser.randint(1, 12)
        output += stream.feed(raw[at : at + step])
        at += step
    output += stream.finish()
    assert len(output) == len(raw) and secret.encode() not in output
    assert all(covered in (plain, 0x2A) for plain, covered in zip(raw, output, strict=True))


@pytest.mark.parametrize("secret", [PASSWORD, TOKEN, SHAPES["GitHub token"][0]])
@pytest.mark.parametrize("sequence", ["\x1b]0;%s\x07", "\x1bP%s\x1b\\", "\x1b %s", "\x1b[ %s"])
def test_a_secret_in_an_escape_sequence_becomes_asterisks_wherever_it_is_split(sequence: str, secret: str) -> None:
    raw = f"before {sequence % secret} after\r\n".encode()
    for cut in range(len(raw)):
        stream = Redactor({"DB_PASSWORD": PASSWORD, "FORGE_TOKEN": TOKEN}).terminal_filter()
        output = stream.feed(raw[:cut]) + stream.feed(raw[cut:]) + stream.finish()
        assert len(output) == len(raw) and secret[-8:].encode() not in output, output


@pytest.mark.parametrize(
    "token",
    [
        *(token for tokens in SHAPES.values() for token in tokens),
        "SG." + "a1B2c3D4e5F" * 2 + "." + "a1B2c" * 8 + "xyz",
        "https://discord.com/api/webhooks/123456789012345678/" + "a1B2c" * 12,
    ],
)
def test_the_end_of_a_token_stays_hidden_wherever_terminal_output_is_split(token: str) -> None:
    raw = f"it is {token} here\r\n".encode()
    for cut in range(len(raw)):
        stream = Redactor().terminal_filter()
        output = stream.feed(raw[:cut]) + stream.feed(raw[cut:]) + stream.finish()
        assert len(output) == len(raw) and token[-12:].encode() not in output, output


@pytest.mark.parametrize("between", ["\r\n", "\x1b[K\r\n", "\n    ", "\n+", "\n-", "\\n"])
@pytest.mark.parametrize("headers", [(), ("Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123456789ABCDEF", "")])
@pytest.mark.parametrize("step", [1, 7, 64, 10_000])
def test_a_private_key_in_terminal_output_is_hidden_wherever_it_is_split(
    between: str, headers: tuple[str, ...], step: int
) -> None:
    begin, *lines, end = RSA.replace("5kM", "5k/").split("\n")
    raw = f"$ cat it{between}{between.join([begin, *headers, *lines, '/+' * 32, end])}\r\nroot@here:~$ what is next".encode()
    stream = Redactor().terminal_filter()
    output = b"".join(stream.feed(raw[at : at + step]) for at in range(0, len(raw), step)) + stream.finish()
    assert len(output) == len(raw) and b"MIIE" not in output and b"/+/+" not in output and b"Q" not in output
    assert begin.encode() in output and output.endswith(f"{end}\r\nroot@here:~$ what is next".encode())


def test_text_about_private_keys_is_not_redacted(redactor: Redactor) -> None:
    raw = b'a.py: if "-----BEGIN PRIVATE KEY-----" in text:\r\n-----BEGIN RSA PRIVATE KEY-----\r\nis how it begins\r\n'
    stream = redactor.terminal_filter()
    assert stream.feed(raw) + stream.finish() == raw


@given(st.binary(max_size=200), st.integers(1, 20))
def test_a_terminal_without_secrets_loses_nothing(raw: bytes, step: int) -> None:
    stream = Redactor({"DB_PASSWORD": PASSWORD}).terminal_filter()
    output = b"".join(stream.feed(raw[at : at + step]) for at in range(0, len(raw), step)) + stream.finish()
    assert output == raw


def test_a_value_that_a_narrow_screen_wraps_is_redacted(redactor: Redactor) -> None:
    stream = redactor.terminal_filter()
    output = stream.feed(f"x {TOKEN[:9]}\r\n\x1b[2;1H{TOKEN[9:15]}\x1b[1m{TOKEN[15:]} y".encode())
    assert output == b"x *********\r\n\x1b[2;1H******\x1b[1m" + b"*" * (len(TOKEN) - 15) + b" y"


def test_the_beginning_released_after_a_pause_still_counts(redactor: Redactor) -> None:
    stream = redactor.terminal_filter()
    assert stream.feed(b"> " + TOKEN[:8].encode()) == b"> " and stream.has_held_output
    assert stream.finish() == TOKEN[:8].encode() and not stream.has_held_output
    assert stream.feed(TOKEN[8:].encode() + b" end") == b"*" * (len(TOKEN) - 8) + b" end"


def test_a_prompt_is_not_held_back(redactor: Redactor) -> None:
    stream = redactor.terminal_filter()
    for keys in (b"> ", b"s", b"k", b"i", b" ", b"z", b"K", b"4", b"\r\n"):
        assert stream.feed(keys) == keys
