"""Permission requests that a rule answers, and those that look like it: the files on the machine decide too."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {agent: probe, runtime: process}
agents:
  probe: {tool: command, command: [sh, -c, '. "$AO_TASK_FILE"'], prompt: file, permissions: auto-edit}
projects: {app: {path: .}}
"""
ASKS = r"""
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


def test_a_rule_answers_what_stays_in_the_workspace(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_text("theirs")
        box.repository(config=CONFIG)
        task = tmp_path / "task.sh"
        task.write_text(ASKS.replace("@OUT@", str(outside)))
        box.start()
        box.ao("new", "--name", "s", "--file", str(task))
        for waits in (
            "edit: link/new.txt",
            "edit: hard",
            "Bash: git mv own link/own",
            "edit: lib/config",
            "edit: ai/settings.json",
            "Bash: git mv own .mcp.json",
            "Bash: git checkout HEAD -- own",
            "Bash: git status⟦U+001B⟧[8m; evil",
        ):
            box.until(lambda waits=waits: _waits_for(box) == waits, waits)  # type: ignore[misc]
            box.ao("answer", "s", "--allow")
        said = box.home.terminal_log("app-s").read_text()
        assert "own/new.txt: y" in said and "git add own: y" in said, "the first two were answered at once"
        answered = [one["data"] for one in box.events("s") if one["type"] == "permission-answered"]
        assert [one.get("by", "person") for one in answered] == [
            "it is a file of its workspace",
            "it is Git on its own branch",
            *["person"] * 8,
        ]
        assert not (outside / "ran").exists(), "a folder that looks like a repository is none to its Git"


def _waits_for(box: Sandbox) -> str:
    asked = [one for one in box.json("answer")["questions"] if one["kind"] == "permission"]
    return f"{asked[0]['permission']['tool']}: {asked[0]['permission']['command']}" if asked else ""
