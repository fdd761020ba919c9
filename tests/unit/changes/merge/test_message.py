"""The commit message of a merge."""

from __future__ import annotations

import pytest

from agent_orchestrator.changes.merge.message import distinct_people, message, person

ANN, BEN = ("Ann", "ann@example.invalid"), ("Ben", "ben@example.invalid")


@pytest.mark.parametrize(
    ("title", "body", "others", "expected"),
    [
        ("T", "", [], "T\n"),
        ("  a\nb\tc\x1b[0m ", "x\r\ny\x00\n\n", [], "a b c [0m\n\nx\ny\n"),
        ("", "", [], "fallback\n"),
        ("T", "", [ANN], "T\n\nCo-authored-by: Ann <ann@example.invalid>\n"),
        (
            "T",
            "B",
            [ANN, BEN],
            "T\n\nB\n\nCo-authored-by: Ann <ann@example.invalid>\nCo-authored-by: Ben <ben@example.invalid>\n",
        ),
        ("T", "B\n\nFixes: 3", [ANN], "T\n\nB\n\nFixes: 3\nCo-authored-by: Ann <ann@example.invalid>\n"),
        ("T", "Co-Authored-By: Ann <ANN@example.invalid>", [ANN], "T\n\nCo-Authored-By: Ann <ANN@example.invalid>\n"),
    ],
)
def test_a_message_has_title_body_and_each_co_author_once(
    title: str, body: str, others: list[tuple[str, str]], expected: str
) -> None:
    assert message(title, body, fallback="fallback", others=others) == expected


def test_authors_are_distinguished_by_address() -> None:
    assert distinct_people([ANN, BEN, ("Annie", "ANN@example.invalid"), BEN], ("B", "Ben@example.invalid")) == [ANN]


def test_an_author_is_parsed_into_name_and_address() -> None:
    assert person("Ann <ann@example.invalid>") == ANN
    assert person(" <ann@example.invalid>") == ("ann", "ann@example.invalid")
    assert person("nobody") is None
