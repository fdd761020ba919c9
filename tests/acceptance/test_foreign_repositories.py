"""Repositories that were made to harm whoever clones them: what they bring is not in force, costs little, and stops nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.saying import refused
from tests.acceptance.test_trust import DEMO, foreign


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("foreign")) as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


def test_a_key_without_a_name_hides_nothing(box: Sandbox) -> None:
    config = DEMO + "agents: {a: {tool: claude-code, options: {'': 0, args: [--settings, evil.json]}}}\n"
    repo = foreign(box, "nameless", config)
    preview = box.request("GET", f"/api/projects/trust?path={repo}")
    assert not preview["trusted"] and "evil.json" in json.dumps(preview["commands"])


def test_trust_in_one_repository_is_none_in_another(box: Sandbox) -> None:
    text = DEMO + "postCreate: [sh ./setup.sh]\n"
    mine, theirs = foreign(box, "mine", text), foreign(box, "theirs", text)
    box.request("POST", "/api/projects/trust", {"path": str(mine)})
    looked = [box.request("GET", f"/api/projects/trust?path={one}")["trusted"] for one in (mine, theirs)]
    assert looked == [True, False]
    refused(box.ao("new", "[[wait]]", cwd=theirs, check=False), 1, "ao trust")


@pytest.mark.parametrize("named", ["plugins: [/dev/zero]", "docker: {dockerfile: /dev/zero}"])
def test_code_without_an_end_is_not_read(box: Sandbox, named: str) -> None:
    repo = foreign(box, "endless-" + named.partition(":")[0], DEMO + named + "\n")
    began = time.monotonic()
    assert "not in force" in box.ao("status", cwd=repo).stderr
    assert time.monotonic() - began < 5
    box.request("GET", "/healthz")
