"""Templates: values are inserted unchanged, mistakes are named, and the work is limited."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_orchestrator.base.text.templates import check, check_condition, is_true, render, variables_of
from agent_orchestrator.errors import UsageError


def test_values_are_never_templates() -> None:
    hostile = "{{7*7}} {% for x in y %} <b>&\n"
    assert render("a {{ text }}\n", {"text": hostile}) == f"a {hostile}\n"


def test_loops_and_filters_of_messages_work() -> None:
    template = "{% for c in comments %}{{loop.index}}. {{c.path|default('?')}}: {{c.text|trim}}\n{% endfor %}{{ none }}"
    comments = [{"path": "a.py", "text": " x "}, {"text": "y"}]
    assert render(template, {"comments": comments, "none": None}) == "1. a.py: x\n2. ?: y\n"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("label == 'needs-tests'", True),
        ("{{ label != 'needs-tests' }}", False),
        ("label.startswith('needs') and count > 2", True),
        ("other is defined", False),
        ("'x' in labels or not labels", False),
    ],
)
def test_conditions_are_evaluated(condition: str, expected: bool) -> None:
    assert is_true(condition, {"label": "needs-tests", "count": 3, "labels": ["a"]}) is expected


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ x", "is wrong"),
        ("{{ missing }}", "'missing' is undefined"),
        ("{{ ''.__class__ }}", "unsafe"),
        ("{{ x|nofilter }}", "No filter named 'nofilter'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' * 999999999 }}", "uses mul"),
        ("{{ 9 ** 9 ** 9 }}", "uses pow"),
        ("{{ '%0999999999d' % 1 }}", "uses mod"),
        ("{{ range(10**9) }}", "calls a function"),
        ("{{ 'x'.ljust(999999999) }}", "calls a function"),
        ("{{ 'x'|indent(999999999, true) }}", "a number over 10000"),
        ("{% set a = 'x' %}", "uses assign"),
        ("{% include 'x' %}", "uses include"),
        ("{% macro m() %}{% endmacro %}", "uses macro"),
        ("{% for a in big recursive %}{{ loop(big) }}{% endfor %}", "calls a function"),
        (
            "{% for a in big %}{% for b in big %}{% for c in big %}{% endfor %}{% endfor %}{% endfor %}",
            "more than 2 loops",
        ),
        ("{% for a in big %}{% for b in big %}{{ text }}{% endfor %}{% endfor %}", "more than 1048576 characters"),
        ("{{ text" + "|tojson" * 30 + " }}", "more than"),
        ("{% for a in big %}{% for b in big %}{% endfor %}{% endfor %}", "more than 20000 steps"),
        ("{% for a in big if a in big|map('string') %}{% endfor %}", "more than 20000 steps"),
        ("{% for a in big %}{{ lines.split('x')|length }}{% endfor %}", "more than 20000 steps"),
        (
            f"{{{{ 'x'.split('y')|list|join('{'z' * 60_000}') }}}}{{{{ big|join('{'z' * 3000}') }}}}",
            "more than 20000 steps",
        ),
        ("{{ lines|indent(9999) }}", "more than 20000 steps"),
        ("{{" + "(" * 5000 + "x" + ")" * 5000 + "}}", "nested too deeply"),
        ("x" * 70_000, "is longer than"),
    ],
)
def test_wrong_and_runaway_templates_are_refused(template: str, reason: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        render(template, {"x": 1, "big": list(range(10_000)), "text": '"\\' * 500, "lines": "a\n" * 50_000})
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("condition", ["a ==", "a b", "missing", "range(3)", "a * 2", "{{a}} {{a}}", "(" * 5000])
def test_wrong_conditions_are_refused(condition: str) -> None:
    with pytest.raises(UsageError):
        is_true(condition, {"a": 1})


def test_unknown_variables_are_refused_with_the_nearest_name() -> None:
    check("{{prompt}} {% for x in errors %}{{x}}{% endfor %}", ["prompt", "errors"])
    check_condition("label == 'x'", ["label"])
    with pytest.raises(UsageError, match="unknown variable prmpt: did you mean prompt"):
        check("{{prmpt}}", ["prompt", "branch"])
    with pytest.raises(UsageError, match="unknown variable lable: did you mean label"):
        check_condition("lable == 'x'", ["label"])
    with pytest.raises(UsageError, match="calls a function"):
        check("{{prompt()}}", ["prompt"])


def test_variables_of_a_template_are_listed() -> None:
    assert variables_of("--x={{ prompt|trim }}{{branch}}") == {"prompt", "branch"}


def test_jinja_is_imported_only_when_a_template_is() -> None:
    code = "import sys, agent_orchestrator.base.text.templates; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
