"""What happened since you last looked, by a real daemon."""

from __future__ import annotations

from agent_orchestrator.testing.sandbox import Sandbox


def test_a_day_of_the_fleet_is_told_in_a_few_lines(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: x.txt|x]] [[commit: x]] [[done: x]]", "--name", "lands")
    process_box.ao("new", "[[ask: Which database?]]", "--name", "asks")
    process_box.until(lambda: process_box.session("app-asks")["status"] == "needs_input", "the question")
    process_box.until(lambda: (process_box.session("app-lands")["pr"] or {}).get("number"), "the pull request")
    process_box.ao("merge", "lands", "--force")
    process_box.until(lambda: process_box.session("app-lands")["status"] == "merged", "the landing")
    process_box.stop()
    process_box.start()
    told = {line["kind"]: line for line in process_box.json("status", "--since", "1h")["lines"]}
    assert told["merged"]["text"].startswith("1 landed: app-lands by ") and told["merged"]["sessions"] == ["app-lands"]
    assert told["asked"]["text"] == "app-asks asked you and waits: ao answer"
    assert "the daemon was started 2 times" in told["restarted"]["text"]
    shown = process_box.ao("status", "--since", "1h").stdout
    assert shown.startswith("Since 1h:\n  1 landed: app-lands by ") and "app-asks" in shown
    assert process_box.json("status", "--since", "2999-01-01")["lines"] == []
    assert not (process_box.home.path / "looked.json").exists()
