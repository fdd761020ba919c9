"""Writing `postCreate` and `ci` into a file: at their usual position, with comments kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.command_writer import set_commands
from agent_orchestrator.config.load import load_text

WITH_COMMENTS = """\
# top
projects:
  app:
    path: .   # here
    # about copy
    copy: [.env]
    # what agents are told
    agentRules: be nice

# end
reactions:
  ci-failed: {retries: 3}
"""


def changed(tmp_path: Path, text: str, set_up: list[str] | None, checks: dict[str, str] | None) -> str:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(text)
    set_commands(file, "app", set_up, checks, {})
    return file.read_text()


def test_new_keys_follow_those_that_usually_precede_them(tmp_path: Path) -> None:
    text = changed(tmp_path, WITH_COMMENTS, ["npm ci"], {"test": "npm test", "lint": "npm run lint"})
    keys = "    postCreate: [npm ci]\n    ci:\n      test: {command: npm test}\n      lint: {command: npm run lint}\n"
    assert text == WITH_COMMENTS.replace("    copy: [.env]\n", f"    copy: [.env]\n{keys}")


def test_a_comment_after_the_last_key_stays_after_it(tmp_path: Path) -> None:
    text = "projects:\n  app:\n    path: .\n    # ci: later\n\n# end\nreactions: {}\n"
    expected = text.replace("    path: .\n", "    path: .\n    ci: {command: make test}\n")
    assert changed(tmp_path, text, None, {"default": "make test"}) == expected


def test_existing_keys_are_replaced_and_others_stay(tmp_path: Path) -> None:
    first = changed(tmp_path, WITH_COMMENTS, ["npm ci"], {"test": "npm test", "lint": "npm run lint"})
    assert (
        changed(tmp_path, first, None, {"default": "make"}).count("postCreate: [npm ci]\n    ci: {command: make}\n")
        == 1
    )
    assert changed(tmp_path, first, [], {}) == WITH_COMMENTS


@pytest.mark.parametrize(
    "text", ["", "defaults: {agent: demo}\n", "project: {path: .}\n", "projects: {app: {path: .}}\n"]
)
def test_a_missing_section_is_created(tmp_path: Path, text: str) -> None:
    config = load_text(changed(tmp_path, text, ["npm ci"], {"default": "npm test"}), tmp_path / "x.yaml", {}).config
    project = config.project or config.projects["app"]
    assert (project.post_create, project.ci["default"].command) == (("npm ci",), "npm test")


def test_variables_in_commands_are_not_expanded(tmp_path: Path) -> None:
    command = "echo ${HOME} $PATH"
    loaded = load_text(changed(tmp_path, "", [command], {"default": command}), tmp_path / "x.yaml", {"HOME": "/h"})
    project = loaded.config.projects["app"]
    assert (project.post_create, project.ci["default"].command) == ((command,), command)
