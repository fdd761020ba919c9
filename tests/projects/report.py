"""The figures of a run: false greens, false reds, how often the set-up was found and proven and the test command right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tests.projects.corpus import Project
from tests.projects.machine import CACHE
from tests.projects.product import FALSE_GREEN, FALSE_RED
from tests.projects.state import Result

SET_UP_BOUND = 0.90
COMMAND_BOUND = 0.95
_STAGES = ("verify", "init", "intact", "broken", "bare")


def write(projects: Sequence[Project], results: Mapping[str, Mapping[str, Result]]) -> bool:
    """Write report.json and report.md, print the totals, and return whether they are within the bounds."""
    seen = {one.name: results.get(one.name, {}) for one in projects}
    wrong = [text for stages in seen.values() for result in stages.values() for text in result.get("wrong", [])]
    tried = [stages["init"] for stages in seen.values() if "init" in stages]
    figures = {
        "projects": len(projects),
        "complete": sum(set(_STAGES) <= set(stages) for stages in seen.values()),
        "falseGreens": sum(text.startswith(FALSE_GREEN) for text in wrong),
        "falseReds": sum(text.startswith(FALSE_RED) for text in wrong),
        "otherwiseWrong": [text for text in wrong if not text.startswith((FALSE_GREEN, FALSE_RED))],
        "setUpProven": _share(sum(one["proven"] for one in tried), len(tried)),
        "commandRight": _share(sum(one["right"] for one in tried), len(tried)),
        "unverified": [name for name, stages in seen.items() if not stages.get("verify", {}).get("ok")],
    }
    good = (
        figures["falseGreens"] == figures["falseReds"] == 0
        and not figures["otherwiseWrong"]
        and not figures["unverified"]
        and figures["complete"] == figures["projects"]
        and (figures["setUpProven"] or 0.0) >= SET_UP_BOUND
        and (figures["commandRight"] or 0.0) >= COMMAND_BOUND
    )
    (CACHE / "report.json").write_text(json.dumps({"figures": figures, "projects": seen}, indent=1))
    text = _markdown(projects, seen, figures)
    (CACHE / "report.md").write_text(text)
    print(text)
    return good


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def _markdown(
    projects: Sequence[Project], seen: Mapping[str, Mapping[str, Result]], figures: Mapping[str, object]
) -> str:
    rows = [
        "| project | stands for | set-up proven | command right | harmless | bug | without set-up |",
        "|---|---|---|---|---|---|---|",
    ]
    for project in projects:
        stages = seen[project.name]
        first = stages.get("init", {})
        cells = [project.name, project.kind, _word(first, "proven"), _word(first, "right")]
        cells += [
            _cell(stages.get("intact"), "check"),
            _cell(stages.get("broken"), "check"),
            _cell(stages.get("bare"), "bug"),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    notes = [
        f"- {name}, {stage}: {result['why']}"
        for name, stages in seen.items()
        for stage, result in stages.items()
        if not result["ok"]
    ]
    totals = [f"- {name}: {value}" for name, value in figures.items()]
    return "\n".join([*rows, "", *totals, *([""] if notes else []), *notes, ""])


def _word(result: Result, key: str) -> str:
    return "-" if key not in result else "yes" if result[key] else "no"


def _cell(result: Result | None, key: str) -> str:
    return "-" if result is None else str(result.get(key, "-")) + ("" if result["ok"] else " (wrong)")
