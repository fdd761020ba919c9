"""Jira's document format: read completely, and our text restored unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.plugins.forges.jira.document_format import from_adf, media_urls, to_adf


def text(value: str, *marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, "marks": list(marks)} if marks else {"type": "text", "text": value}


def doc(*content: Any) -> dict[str, Any]:
    return {"type": "doc", "version": 1, "content": list(content)}


def paragraph(*content: Any) -> dict[str, Any]:
    return {"type": "paragraph", "content": list(content)}


@pytest.mark.parametrize(
    "written",
    [
        "",
        "one line",
        "two\nlines",
        "a\n\nb",
        "# Title\n\ntext",
        "- one\n- two",
        "3. three\n4. four",
        "text\n\n- one\n- two\n\nafter",
        "```py\nx = 1\n\ny = 2\n```",
        "see `code` and **this**",
        "a [link](https://a.example/x) and https://b.example/y.",
        "```\n- no list\n```",
    ],
)
def test_our_text_is_restored_unchanged(written: str) -> None:
    assert from_adf(to_adf(written)) == written


def test_a_text_becomes_nodes() -> None:
    assert to_adf("see `x` at https://a.example/1, **now**\nand") == doc(
        paragraph(
            text("see "),
            text("x", {"type": "code"}),
            text(" at "),
            text("https://a.example/1", {"type": "link", "attrs": {"href": "https://a.example/1"}}),
            text(", "),
            text("now", {"type": "strong"}),
            {"type": "hardBreak"},
            text("and"),
        )
    )


def test_other_documents_are_read_completely() -> None:
    cell = {"type": "tableCell", "content": [paragraph(text("c"))]}
    written = doc(
        paragraph(text("Hi "), {"type": "mention", "attrs": {"id": "1", "text": "@Rev"}}, text("!", {"type": "em"})),
        {"type": "panel", "attrs": {"panelType": "info"}, "content": [paragraph(text("inside"))]},
        {"type": "blockquote", "content": [paragraph(text("said"))]},
        {"type": "rule"},
        {"type": "table", "content": [{"type": "tableRow", "content": [cell, cell]}]},
        {"type": "taskList", "content": [{"type": "taskItem", "attrs": {"state": "DONE"}, "content": [text("t")]}]},
        {
            "type": "bulletList",
            "content": [{"type": "listItem", "content": [paragraph(text("a")), {"type": "bulletList", "content": [
                {"type": "listItem", "content": [paragraph(text("b"))]}]}]}],
        },
        {"type": "mediaSingle", "content": [{"type": "media", "attrs": {"url": "https://a.example/p.png"}}]},
        {"type": "blockCard", "attrs": {"url": "https://a.example/card"}},
        {"type": "emoji", "attrs": {"shortName": ":x:", "text": "❌"}},
        {"type": "fromTheFuture", "content": [paragraph(text("kept"))]},
    )  # fmt: skip
    assert from_adf(written) == (
        "Hi @Rev_!_\n\ninside\n\n> said\n\n---\n\n| c | c |\n\n- [x] t\n\n- a\n  - b\n\n"
        "https://a.example/p.png\n\nhttps://a.example/card\n\n❌\n\nkept"
    )
    assert media_urls(written) == ["https://a.example/p.png", "https://a.example/card"]


def test_a_servers_text_stays_one() -> None:
    assert from_adf("*wiki* {code}x{code}") == "*wiki* {code}x{code}"
    assert from_adf(None) == ""


def test_depth_has_an_end() -> None:
    node: dict[str, Any] = paragraph(text("deep"))
    for _ in range(5000):
        node = {"type": "panel", "content": [node]}
    assert from_adf(doc(node)) == ""
    assert media_urls(doc(node)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "content", "text", "attrs", "marks", "url", "level", "order"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_nothing_that_is_sent_makes_it_crash(value: Any) -> None:
    assert isinstance(from_adf(value), str)
    media_urls(value)


@given(st.text())
def test_every_text_becomes_a_document_without_empty_texts(value: str) -> None:
    def check_node(node: dict[str, Any]) -> None:
        assert node["type"] != "text" or node["text"]
        for inner in node.get("content", []):
            check_node(inner)

    check_node(to_adf(value))
