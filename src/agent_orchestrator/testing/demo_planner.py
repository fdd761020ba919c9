"""The scripted agent as a planner: reads a brief and answers with a plan made from the goal's lines or from directives.

    python demo_planner.py FILE [--again]

`FILE` keeps the goal and the number of calls, so that `--again` continues the conversation. It prints JSON lines, which
`plugins/agents/demo.py` reads. docs/agents/demo.md lists the directives. It is a script that needs only the standard library.
"""

from __future__ import annotations

import json
import re
import sys
import time

DIRECTIVE = re.compile(r"\[\[\s*([a-z]+)\s*(?::((?:(?!\[\[).)*?))?\]\]", re.DOTALL)
PLAN = re.compile(r"\[\[\s*plan\s*:\s*")
GOAL = re.compile(r"<goal>\n(.*)\n</goal>", re.DOTALL)
ISSUE = re.compile(r"^Issue (\d+): (.*?)(?: \[([^\]\n]*)\])?(?: \(after ([\d, ]+)\))?$", re.MULTILINE)
ISSUES = re.compile(r"<issues>\n(.*)\n</issues>", re.DOTALL)
BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(\S.*)$", re.MULTILINE)
AFTER = re.compile(r"\s*\(after ([\d, ]+)\)\s*$")
PATH = re.compile(r"(?<![\w/.-])[\w.-]+(?:/[\w.-]+)*\.[a-z]{1,5}\b")

Step = tuple[str, str]


def print_record(kind: str, **data: object) -> None:
    """Print one JSON record."""
    sys.stdout.write(json.dumps({"demo": kind, **data}) + "\n")
    sys.stdout.flush()


def parse_answers(goal: str) -> list[list[Step]]:
    """Return the directives of each answer; the last one of a list is the answer itself, `plan` or `say`."""
    scripts: list[list[Step]] = [[]]
    position = 0
    while position < len(goal):
        plan, other = PLAN.search(goal, position), DIRECTIVE.search(goal, position)
        if plan is not None and (other is None or plan.start() <= other.start()):
            try:
                data, position = json.JSONDecoder().raw_decode(goal, plan.end())
            except ValueError:
                position = plan.end()
                continue
            scripts[-1].append(("plan", json.dumps(data)))
            scripts.append([])
        elif other is not None:
            scripts[-1].append((other[1], (other[2] or "").strip()))
            if other[1] == "say":
                scripts.append([])
            position = other.end()
        else:
            break
    return [steps for steps in scripts if steps]


def default_plan(goal: str, issues: str) -> dict[str, object]:
    """Return a plan with a task per bullet of the goal, or per issue if there is no goal; a final `(after 1, 2)` names dependencies."""
    if not goal:
        rows = ISSUE.findall(issues)
        issue_numbers = {number for number, *_ in rows}
        listed = [
            {
                "id": f"t{number}",
                "title": title,
                "issue": int(number),
                "labels": [label.strip() for label in labels.split(",") if label.strip()],
                "dependencies": [
                    f"t{dependency}" for dependency in re.findall(r"\d+", after) if dependency in issue_numbers
                ],
            }
            for number, title, labels, after in rows
        ]
        return {"tasks": listed, "notes": []}
    lines = BULLET.findall(goal) or [" ".join(goal.split())]
    tasks = []
    for number, line in enumerate(lines, 1):
        after = AFTER.search(line)
        text = AFTER.sub("", line)
        tasks.append(
            {
                "id": f"t{number}",
                "title": text[:120],
                "description": text,
                "acceptance": [f"{text[:120]}: done and committed"],
                "dependencies": [f"t{dependency}" for dependency in re.findall(r"\d+", after[1])] if after else [],
                "effort": "small",
                "files": PATH.findall(text),
            }
        )
    return {"tasks": tasks, "notes": []}


def run_step(step: Step) -> int | None:
    """Run one directive; return an exit code if it ends the turn."""
    name, argument = step
    if name == "sleep":
        print_record("show", text=f"thinking for {argument} s")
        time.sleep(float(argument))
    elif name == "usage":
        pairs = dict(pair.partition("=")[::2] for pair in argument.split())
        figures = {key: float(value) if key == "usd" else int(value) for key, value in pairs.items() if key != "model"}
        print_record("report", report={"event": "usage", "model": pairs.get("model", ""), **figures})
    elif name == "limit":
        print_record("report", report={"event": "limit", **({"resets_at": argument} if argument else {})})
        return 1
    elif name == "fail":
        print_record("show", text=argument or "it failed")
        return 1
    elif name == "write":
        path, _, text = argument.partition("|")
        with open(path.strip(), "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text + "\n")
    return None


def main() -> int:
    """Run one turn and return its exit code."""
    file, again, prompt = sys.argv[1], "--again" in sys.argv[2:], sys.stdin.read()
    if again:
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123
            state = json.load(opened)
    else:
        goal, issues = GOAL.search(prompt), ISSUES.search(prompt)
        state = {"goal": goal[1].strip() if goal else "", "issues": issues[1] if issues else "", "asked": 0}
    number = state["asked"]
    state["asked"] = number + 1
    with open(file, "w", encoding="utf-8") as out:  # noqa: PTH123
        json.dump(state, out)
    print_record("conversation", id="demo")
    script = parse_answers(state["goal"])
    answer = ""
    for step in script[min(number, len(script) - 1)] if script else []:
        if step[0] in ("plan", "say"):
            answer = step[1]
        elif (code := run_step(step)) is not None:
            return code
    print_record(
        "turn", text=answer or json.dumps(default_plan(DIRECTIVE.sub("", state["goal"]).strip(), state["issues"]))
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
