"""Hostile configurations: those that would keep the daemon busy are refused, and any text is loaded or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.config.load import load_file, load_text
from agent_orchestrator.config.model import Config
from agent_orchestrator.errors import ConfigError
from tests.unit.config.load.documents import FILE, load_config_text, load_problems


def test_an_alias_bomb_is_refused_quickly() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    assert "more than 20000 values" in load_problems(bomb)[0]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1500,
        "{a: " * 3000,
        "a: " + "[" * 200 + "]" * 200,
        "reactions: {ci-failed: {message: '{{" + "(" * 5000 + "'}}",
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert load_problems(text)


def test_constants_in_templates_are_not_computed() -> None:
    assert "pow" in load_problems("reactions: {ci-failed: {message: '{{ 9**9**9**9 }}'}}")[0]


def test_unicode_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "ö.yaml"
    path.write_bytes("\ufeffproject: {agentRules: 'Grüße 🎉'}".encode())
    project = load_file(path, {}).config.project
    assert project is not None
    assert project.agent_rules == "Grüße 🎉"


def test_merge_keys_and_aliases() -> None:
    merged = load_config_text("projects:\n  a: &a {path: x, defaultBranch: main}\n  b: {<<: *a, path: y}\n")
    assert (merged.projects["b"].path, merged.projects["b"].default_branch) == ("y", "main")


_KEYS = st.sampled_from(
    [
        *Config.model_json_schema()["properties"],
        "ci-failed",
        "id",
        "config",
        "name",
        "path",
        "worker",
        "coordinator",
        "trigger",
        "agentConfig",
        "ci",
        "reactions",
        "env",
        "command",
        "message",
        "webhook",
        "reaction_handlers",
        "<<",
        "agents",
        "tracker",
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["${X}", "30m", "{{", "tmux"]),
)
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=20,
)


def _never_anything_else(text: str) -> None:
    try:
        load_text(text, FILE, {"HOME": "/h"})
    except ConfigError as error:
        assert str(error).startswith("ao.yaml:")


@given(st.text())
def test_arbitrary_text_is_loaded_or_refused(text: str) -> None:
    _never_anything_else(text)


@given(st.text(alphabet="abc:{}[]-&*!|>'\"%@`#?, \n\t<~0.$"))
def test_arbitrary_yaml_is_loaded_or_refused(text: str) -> None:
    _never_anything_else(text)


@given(st.dictionaries(_KEYS, _TREES, max_size=5))
def test_arbitrary_structures_are_loaded_or_refused(tree: dict[str, Any]) -> None:
    _never_anything_else(json.dumps(tree))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: " + "[a," * 5_000, "nested too deeply"),
        ("".join(f"k{number}: v\n" for number in range(20_000)), "20000 keys and items"),
        ("- " * 20_000, "20000 keys and items"),
        ("x" * (1 << 19), "is larger than"),
    ],
)
def test_a_file_that_is_too_large_or_too_deep_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_file(file, {})


@pytest.mark.parametrize("number", ["0x" + "f" * 5_000, "9" * 4_000, "-0b" + "1" * 20_000])
@pytest.mark.parametrize("key", ["port", "ports.base", "defaults.checkpoint", "maxTotal"])
def test_a_huge_number_is_refused_in_one_short_line(key: str, number: str) -> None:
    """No error message spells the number out: Python refuses to, which would keep the daemon from starting."""
    first, *rest = key.split(".")
    errors = load_problems(f"{first}: " + "".join(f"{{{part}: " for part in rest) + number + "}" * len(rest))
    assert errors and all(len(line) < 300 for line in errors)


@pytest.mark.parametrize("number", ["9" * 4_000, "9" * 90, "1000000000000000000000"])
@pytest.mark.parametrize(
    "key",
    [
        *("reactions.ci-failed.retries", "reactions.ci-failed.approvalAfter", "reactions.ci-failed.escalateAfter"),
        *("reactions.ci-failed.delay", "reactions.ci-failed.backoff", "reactions.ci-failed.timeout", "docker.cpus"),
        *("docker.memory", "maxParallelAgents", "review.maxRounds", "fix.parallel", "cluster.resources.cpus"),
        *("orchestrator.planner.maxTasks", "orchestrator.coordinator.maxSessions", "notifications.digest"),
    ],
)
def test_a_huge_limit_is_refused(key: str, number: str) -> None:
    first, *rest = key.split(".")
    [error] = load_problems(f"{first}: " + "".join(f"{{{part}: " for part in rest) + number + "}" * len(rest))
    assert key in error and len(error) < 300, error
