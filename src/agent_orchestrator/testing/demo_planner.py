"""The scripted agent as a planner: reads a brief, and answers with a plan made of the goal's own lines, or as directives say.

    python demo_planner.py FILE [--again]

`FILE` keeps the goal and how often it was asked, so that `--again` goes on with the conversation. What it says are JSON lines, which
`plugins/agents/demo.py` reads. docs/agents/demo.md lists the directives. It runs by itself, on the standard library alone.
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


def tell(kind: str, **data: object) -> None:
    """Say one thing to whoever started it."""
    sys.stdout.write(json.dumps({"demo": kind, **data}) + "\n")
    sys.stdout.flush()


def answers(goal: str) -> list[list[Step]]:
    """The directives, a list for each answer: one ends with what is answered, `plan` or `say`."""
    found: list[list[Step]] = [[]]
    place = 0
    while place < len(goal):
        plan, other = PLAN.search(goal, place), DIRECTIVE.search(goal, place)
        if plan is not None and (other is None or plan.start() <= other.start()):
            try:
                data, place = json.JSONDecoder().raw_decode(goal, plan.end())
            except ValueError:
                place = plan.end()
                continue
            found[-1].append(("plan", json.dumps(data)))
            found.append([])
        elif other is not None:
            found[-1].append((other[1], (other[2] or "").strip()))
            if other[1] == "say":
                found.append([])
            place = other.end()
        else:
            break
    return [steps for steps in found if steps]


def own_plan(goal: str, issues: str) -> dict[str, object]:
    """A task a bullet of the goal, or an issue a task where there is no goal; `(after 1, 2)` at its end are dependencies."""
    if not goal:
        rows = ISSUE.findall(issues)
        known = {number for number, *_ in rows}
        listed = [
            {
                "id": f"t{number}",
                "title": title,
                "issue": int(number),
                "labels": [label.strip() for label in labels.split(",") if label.strip()],
                "dependencies": [f"t{one}" for one in re.findall(r"\d+", after) if one in known],
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
                "dependencies": [f"t{one}" for one in re.findall(r"\d+", after[1])] if after else [],
                "effort": "small",
                "files": PATH.findall(text),
            }
        )
    return {"tasks": tasks, "notes": []}


def carry_out(step: Step) -> int | None:
    """Do one thing; an exit code ends the turn."""
    name, argument = step
    if name == "sleep":
        tell("show", text=f"thinking for {argument} s")
        time.sleep(float(argument))
    elif name == "usage":
        pairs = dict(pair.partition("=")[::2] for pair in argument.split())
        figures = {key: float(value) if key == "usd" else int(value) for key, value in pairs.items() if key != "model"}
        tell("report", report={"event": "usage", "model": pairs.get("model", ""), **figures})
    elif name == "limit":
        tell("report", report={"event": "limit", **({"resets_at": argument} if argument else {})})
        return 1
    elif name == "fail":
        tell("show", text=argument or "it failed")
        return 1
    elif name == "write":
        path, _, text = argument.partition("|")
        with open(path.strip(), "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text + "\n")
    return None


def main() -> int:
    """One turn; returns its exit code."""
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
    tell("conversation", id="demo")
    script = answers(state["goal"])
    said = ""
    for step in script[min(number, len(script) - 1)] if script else []:
        if step[0] in ("plan", "say"):
            said = step[1]
        elif (code := carry_out(step)) is not None:
            return code
    tell("turn", text=said or json.dumps(own_plan(DIRECTIVE.sub("", state["goal"]).strip(), state["issues"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
