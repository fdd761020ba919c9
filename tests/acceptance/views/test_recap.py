"""What happened since you last looked, by a real daemon."""

from __future__ import annotations

from agent_orchestrator.testing.sandbox import Sandbox


def test_a_day_of_the_fleet_is_told_in_a_few_lines(one: Sandbox) -> None:
    one.ao("new", "[[write: x.txt|x]] [[commit: x]] [[done: x]]", "--name", "lands")
    one.ao("new", "[[ask: Which database?]]", "--name", "asks")
    one.until(lambda: one.session("app-asks")["status"] == "needs_input", "the question")
    one.until(lambda: (one.session("app-lands")["pr"] or {}).get("number"), "the pull request")
    one.ao("merge", "lands", "--force")
    one.until(lambda: one.session("app-lands")["status"] == "merged", "the landing")
    one.stop()
    one.start()
    told = {line["kind"]: line for line in one.json("status", "--since", "1h")["lines"]}
    assert told["merged"]["text"].startswith("1 landed: app-lands by ") and told["merged"]["sessions"] == ["app-lands"]
    assert told["asked"]["text"] == "app-asks asked you and waits: ao answer"
    assert "the daemon was started 2 times" in told["restarted"]["text"]
    shown = one.ao("status", "--since", "1h").stdout
    assert shown.startswith("Since 1h:\n  1 landed: app-lands by ") and "app-asks" in shown
    assert one.json("status", "--since", "2999-01-01")["lines"] == []
    assert not (one.home.path / "looked.json").exists()
