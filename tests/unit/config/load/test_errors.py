"""Error messages for invalid configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.load import load_file
from agent_orchestrator.errors import ConfigError
from tests.unit.config.load.documents import load_config_text, load_problems


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("defaults:\n  runtme: x\n", 'ao.yaml:2: defaults.runtme: unknown key: did you mean "runtime"?'),
        (
            "project:\n  default_brnch: x\n",
            'ao.yaml:2: project.default_brnch: unknown key: did you mean "defaultBranch"?',
        ),
        ("port: many\n", 'ao.yaml:1: port: "many" is not accepted: write a whole number'),
        ("port: 70000\n", "ao.yaml:1: port: 70000 is not accepted: write a number up to 65535"),
        ("projects: 3\n", "ao.yaml:1: projects: 3 is not accepted: write a mapping of keys"),
        (
            "projects: {a: {path: ., env: DB_PASSWORD=hunter22}}\n",
            "ao.yaml:1: projects.a.env: a text is not accepted: write a mapping of keys",
        ),
        ("- a\n", "ao.yaml:1: the file is not a mapping of keys: begin with a key such as projects:"),
        ("a: [\n", "ao.yaml:2: not valid YAML at column 1:"),
        ("a:\n\tb: 1\n", "ao.yaml:2: not valid YAML at column 1: found character '\\t' that cannot start any token"),
        ("port: 1\nport: 2\n", "ao.yaml:2: port: given twice, first in line 1"),
        ("a: &a [*a]\n", "ao.yaml:1: a.0: contains itself"),
        (
            "a: !!python/object:os.system x\n",
            'ao.yaml:1: a: the tag "tag:yaml.org,2002:python/object:os.system" is not',
        ),
        ("? [a]\n: b\n", "ao.yaml:1: a key is a list or a mapping"),
        ("reactions:\n  ci-faild: {}\n", 'ao.yaml:2: reactions.ci-faild: "ci-faild" is no trigger'),
        (
            "reactions:\n  ci-failed:\n    message: '{{erors}}'\n",
            "ao.yaml:3: reactions.ci-failed.message: the template '{{erors}}' names the unknown variable erors: did you mean errors?",
        ),
        (
            "reactions:\n  ci-failed:\n    message: '{{ x'\n",
            "ao.yaml:3: reactions.ci-failed.message: the template '{{ x' is wrong",
        ),
        (
            "reactions:\n  ci-failed:\n    message: '{{ errors|nofilter }}'\n",
            "ao.yaml:3: reactions.ci-failed.message: the template '{{ errors|nofilter }}' is wrong",
        ),
        (
            "reactions:\n  ci-failed:\n    condition: 'label =='\n",
            "ao.yaml:3: reactions.ci-failed.condition: the condition 'label ==' is wrong",
        ),
        (
            "reactions:\n  ci-failed:\n    condition: 'lable == 1'\n",
            "ao.yaml:3: reactions.ci-failed.condition: the condition 'lable == 1' names the unknown variable lable: did you mean label?",
        ),
        (
            "reactions:\n  ci-failed:\n    action: send\n",
            'ao.yaml:3: reactions.ci-failed.action: "send" is not accepted',
        ),
        (
            "project:\n  branchPattern: 'x/{{nam}}'\n",
            "ao.yaml:2: project.branchPattern: the template 'x/{{nam}}' names the unknown variable nam: did you mean name?",
        ),
        ("agents:\n  x: {tool: command}\n", "ao.yaml:2: agents.x: tool command needs a command"),
        (
            "agents:\n  x: {command: ['{{promt}}']}\n",
            "ao.yaml:2: agents.x.command.0: the template '{{promt}}' names the unknown variable promt: did you mean prompt?",
        ),
        (
            "agents:\n  x: {command: [a], screen: {busy: '('}}\n",
            'ao.yaml:2: agents.x.screen.busy: "(" is no regular expression',
        ),
        ("agents:\n  x: {command: a && b}\n", "ao.yaml:2: command: no shell reads &&"),
        ("agents:\n  - tool: codex\n", "ao.yaml:2: agents: the item has no id"),
        ("defaults: {runtime: tmx}\n", 'ao.yaml:1: defaults.runtime: there is no runtime "tmx": did you mean "tmux"?'),
        ("defaults: {agent: cluade-code}\n", 'ao.yaml:1: defaults.agent: there is no agent "cluade-code"'),
        ("project:\n  copy: [../../secret]\n", 'ao.yaml:2: project.copy.0: "../../secret" is not a path inside'),
        ("project:\n  sparse: [../x]\n", 'ao.yaml:2: project.sparse.0: "../x" is not a path inside'),
        (
            "project:\n  sparse: packages/*\n",
            'ao.yaml:2: project.sparse.0: "packages/*" is no folder of the repository',
        ),
        ("project:\n  sparse: [a, .]\n", 'ao.yaml:2: project.sparse.1: "." is no folder of the repository'),
        ("project:\n  sparse: ['a\\b']\n", 'ao.yaml:2: project.sparse.0: "a\\b" is no folder of the repository'),
        ("project:\n  sparse: [a//b]\n", 'ao.yaml:2: project.sparse.0: "a//b" is no folder of the repository'),
        ("project:\n  sparse: {a: b}\n", "ao.yaml:2: project.sparse: "),
        ("project:\n  symlinks: /etc\n", 'ao.yaml:2: project.symlinks.0: "/etc" is not a path inside'),
        ("projects:\n  ../x: {path: y}\n", 'ao.yaml:2: projects.../x: "../x" is no name'),
        ("projects:\n  a: {path: x}\n  b: {}\n", "ao.yaml:3: projects.b.path: is missing"),
        ("project:\n  ci: {timeout: 3}\n", "ao.yaml:2: project.ci.default.command: is missing"),
        ("project:\n  env: {'A=B': c}\n", 'ao.yaml:2: project.env.A=B: "A=B" is no name of an environment variable'),
        (
            "project:\n  agentConfig: {permissions: ful}\n",
            'ao.yaml:2: project.agentConfig.permissions: "ful" is not accepted',
        ),
        ("project:\n  budget: {perDay: 5 EUR}\n", 'ao.yaml:2: project.budget.perDay: "5 EUR" is no amount'),
    ],
)
def test_errors_name_line_key_and_remedy(text: str, line: str) -> None:
    assert load_problems(text)[0].startswith(line)


def test_all_errors_are_reported_at_once_in_order() -> None:
    lines = load_problems("port: x\ndefaults:\n  agnt: y\nreactions:\n  ci-failed: {retries: -1}\n")
    assert [line.split(": ")[0] for line in lines] == ["ao.yaml:1", "ao.yaml:3", "ao.yaml:5"]


def test_a_single_error_has_a_separate_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config_text("prot: 3\n")
    assert caught.value.remedy == 'did you mean "port"?'


def test_unreadable_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: b\nname: caf\xe9\n")
    for path, reason in (
        (tmp_path / "none.yaml", "is not there"),
        (tmp_path, "cannot be read"),
        (latin, ":2: not UTF-8"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_file(path, {})
