"""`ao status --since`: a summary of what happened."""

from __future__ import annotations

from agent_orchestrator.testing.sandbox import Sandbox


def test_status_since_summarizes_merges_questions_and_restarts(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: x.txt|x]] [[commit: x]] [[done: x]]", "--name", "lands")
    process_box.ao("new", "[[ask: Which database?]]", "--name", "asks")
    process_box.wait_until(lambda: process_box.session("app-asks")["status"] == "needs_input", "the question")
    process_box.wait_until(lambda: (process_box.session("app-lands")["pr"] or {}).get("number"), "the pull request")
    process_box.ao("merge", "lands", "--force")
    process_box.wait_until(lambda: process_box.session("app-lands")["status"] == "merged", "the merge")
    process_box.stop()
    process_box.start()
    lines = {line["kind"]: line for line in process_box.json("status", "--since", "1h")["lines"]}
    assert lines["merged"]["text"].startswith("1 landed: app-lands by ") and lines["merged"]["sessions"] == [
        "app-lands"
    ]
    assert lines["asked"]["text"] == "app-asks asked you and waits: ao answer"
    assert "the daemon was started 2 times" in lines["restarted"]["text"]
    output = process_box.ao("status", "--since", "1h").stdout
    assert output.startswith("Since 1h:\n  1 landed: app-lands by ") and "app-asks" in output
    assert process_box.json("status", "--since", "2999-01-01")["lines"] == []
    assert not (process_box.home.path / "looked.json").exists()
