"""Permission requests that a rule answers, and similar ones that it leaves to a person because of the files on disk."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {agent: probe, runtime: process}
agents:
  probe: {tool: command, command: [sh, -c, '. "$AO_TASK_FILE"'], prompt: file, permissions: auto-edit}
projects: {app: {path: .}}
"""
TASK = r"""
ask() { printf '{"event": "permission", "tool": "%s", "command": "%s"}\n' "$1" "$2" >> "$AO_SPOOL"; read answer; echo "$2: $answer"; }
mkdir own && ln -s @OUT@ link && ln @OUT@/file hard
mkdir -p lib/objects lib/refs .claude && ln -s .claude ai && printf 'ref: refs/heads/main\n' > lib/HEAD
printf '[core]\nrepositoryformatversion = 0\nworktree = "%s"\nfsmonitor = "touch @OUT@/ran"\n' "$PWD/lib" > lib/config
(cd lib && git status)
ask edit own/new.txt
ask Bash 'git add own'
ask edit link/new.txt
ask edit hard
ask Bash 'git mv own link/own'
ask edit lib/config
ask edit ai/settings.json
ask Bash 'git mv own .mcp.json'
ask Bash 'git checkout HEAD -- own'
ask Bash 'git status\u001b[8m; evil'
sleep 600
"""


def test_a_rule_answers_only_requests_that_stay_in_the_workspace(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_text("theirs")
        box.repository(config=CONFIG)
        task = tmp_path / "task.sh"
        task.write_text(TASK.replace("@OUT@", str(outside)))
        box.start()
        box.ao("new", "--name", "s", "--file", str(task))
        for request in (
            "edit: link/new.txt",
            "edit: hard",
            "Bash: git mv own link/own",
            "edit: lib/config",
            "edit: ai/settings.json",
            "Bash: git mv own .mcp.json",
            "Bash: git checkout HEAD -- own",
            "Bash: git status⟦U+001B⟧[8m; evil",
        ):
            box.wait_until(lambda request=request: _pending_request(box) == request, request)  # type: ignore[misc]
            box.ao("answer", "s", "--allow")
        log = box.home.terminal_log("app-s").read_text()
        assert "own/new.txt: y" in log and "git add own: y" in log, "the first two were answered by the rule"
        answered = [item["data"] for item in box.events("s") if item["type"] == "permission-answered"]
        assert [item.get("by", "person") for item in answered] == [
            "it is a file of its workspace",
            "it is Git on its own branch",
            *["person"] * 8,
        ]
        assert not (outside / "ran").exists(), "Git does not use the folder that looks like a repository"


def _pending_request(box: Sandbox) -> str:
    questions = [question for question in box.json("answer")["questions"] if question["kind"] == "permission"]
    return f"{questions[0]['permission']['tool']}: {questions[0]['permission']['command']}" if questions else ""
