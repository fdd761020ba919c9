"""The figures of a run: false greens, false reds, proven set-ups and correct test commands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tests.projects.corpus import CorpusProject
from tests.projects.machine import CACHE
from tests.projects.product import FALSE_GREEN, FALSE_RED
from tests.projects.state import Result

SET_UP_BOUND = 0.90
COMMAND_BOUND = 0.95
_STAGES = ("verify", "init", "intact", "broken", "bare")


def write_report(projects: Sequence[CorpusProject], results: Mapping[str, Mapping[str, Result]]) -> bool:
    """Write report.json and report.md, print the totals, and return whether they are within the bounds."""
    results_by_project = {project.name: results.get(project.name, {}) for project in projects}
    problems = [
        text for stages in results_by_project.values() for result in stages.values() for text in result.get("wrong", [])
    ]
    init_results = [stages["init"] for stages in results_by_project.values() if "init" in stages]
    figures = {
        "projects": len(projects),
        "complete": sum(set(_STAGES) <= set(stages) for stages in results_by_project.values()),
        "falseGreens": sum(text.startswith(FALSE_GREEN) for text in problems),
        "falseReds": sum(text.startswith(FALSE_RED) for text in problems),
        "otherwiseWrong": [text for text in problems if not text.startswith((FALSE_GREEN, FALSE_RED))],
        "setUpProven": _share(sum(project["proven"] for project in init_results), len(init_results)),
        "commandRight": _share(sum(project["right"] for project in init_results), len(init_results)),
        "unverified": [name for name, stages in results_by_project.items() if not stages.get("verify", {}).get("ok")],
    }
    is_good = (
        figures["falseGreens"] == figures["falseReds"] == 0
        and not figures["otherwiseWrong"]
        and not figures["unverified"]
        and figures["complete"] == figures["projects"]
        and (figures["setUpProven"] or 0.0) >= SET_UP_BOUND
        and (figures["commandRight"] or 0.0) >= COMMAND_BOUND
    )
    (CACHE / "report.json").write_text(json.dumps({"figures": figures, "projects": results_by_project}, indent=1))
    text = _markdown(projects, results_by_project, figures)
    (CACHE / "report.md").write_text(text)
    print(text)
    return is_good


def _share(part: int, total: int) -> float | None:
    return round(part / total, 3) if total else None


def _markdown(
    projects: Sequence[CorpusProject],
    results_by_project: Mapping[str, Mapping[str, Result]],
    figures: Mapping[str, object],
) -> str:
    rows = [
        "| project | stands for | set-up proven | command right | harmless | bug | without set-up |",
        "|---|---|---|---|---|---|---|",
    ]
    for project in projects:
        stages = results_by_project[project.name]
        init_result = stages.get("init", {})
        cells = [project.name, project.kind, _word(init_result, "proven"), _word(init_result, "right")]
        cells += [
            _cell(stages.get("intact"), "check"),
            _cell(stages.get("broken"), "check"),
            _cell(stages.get("bare"), "bug"),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    notes = [
        f"- {name}, {stage}: {result['why']}"
        for name, stages in results_by_project.items()
        for stage, result in stages.items()
        if not result["ok"]
    ]
    totals = [f"- {name}: {value}" for name, value in figures.items()]
    return "\n".join([*rows, "", *totals, *([""] if notes else []), *notes, ""])


def _word(result: Result, key: str) -> str:
    return "-" if key not in result else "yes" if result[key] else "no"


def _cell(result: Result | None, key: str) -> str:
    return "-" if result is None else str(result.get(key, "-")) + ("" if result["ok"] else " (wrong)")
