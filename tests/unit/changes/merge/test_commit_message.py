"""The commit message of a merge."""

from __future__ import annotations

import pytest

from agent_orchestrator.changes.merge.commit_message import (
    distinct_people,
    merge_body,
    merge_message,
    merge_title,
    parse_person,
)

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
    assert merge_message(title, body, fallback="fallback", others=others) == expected


def test_authors_are_distinguished_by_address() -> None:
    assert distinct_people([ANN, BEN, ("Annie", "ANN@example.invalid"), BEN], ("B", "Ben@example.invalid")) == [ANN]


def test_an_author_is_parsed_into_name_and_address() -> None:
    assert parse_person("Ann <ann@example.invalid>") == ANN
    assert parse_person(" <ann@example.invalid>") == ("ann", "ann@example.invalid")
    assert parse_person("nobody") is None


def test_a_merge_is_titled_like_its_pull_request_and_closes_its_issue() -> None:
    assert merge_title("Add a roof", 3) == "Add a roof (#3)"
    assert merge_body("Added it.", "7") == "Closes #7\n\nAdded it."
    assert merge_body("", "7") == "Closes #7"
    assert merge_body("", None) == ""


def test_texts_of_others_in_a_merge_do_not_command_a_forge() -> None:
    title, body = merge_title("Fixes #1 [skip ci]", 3), merge_body("Thanks to @ann. Fixes #2", "7")
    assert "Fixes #1" not in title and "[skip ci]" not in title
    assert "@ann" not in body and "Fixes #2" not in body and body.startswith("Closes #7")
