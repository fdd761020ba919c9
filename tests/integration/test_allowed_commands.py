"""Commands that a rule allows are run by a real shell in a real worktree: nothing outside of it and its branch changes, no file that
configures programs changes, no secret is read, and no other program runs.

For more examples: `AO_EXAMPLES=5000 pytest tests/integration/test_allowed_commands.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from agent_orchestrator.sessions.permissions.path_checks import paths_stay_inside
from agent_orchestrator.sessions.permissions.rules import check_permission, normalize_command

CANARY = "CANARY-5f2d-SECRET"
CORPUS = Path(__file__).parents[1] / "unit" / "sessions" / "permissions"


def corpus(name: str) -> list[str]:
    """Return the commands of a corpus."""
    lines = (CORPUS / name).read_text().splitlines()
    return [json.loads(line.split("\t")[0]) for line in lines if not line.startswith("#")]


ALLOWED = corpus("permissions_allowed.txt")
HOSTILE_WORDS = r"""
    --output=pwned --outp=pwned --output ../outside/canary.txt /etc/passwd link/canary.txt link flink link/new -F -t
    --template=flink
    --no-index --ext-diff --textconv -Oevil --open-files-in-pager=evil --contents=flink -x evil --exec=evil -S -p -i -e * ** *.txt ?
    -f --force -c core.pager=evil --pathspec-from-file=flink -Fflink $(evil) `evil` ;evil &&evil |evil >pwned >../outside/new
    <flink ${HOME} ~ ~/x :/ :(top)x :!x HEAD:a.txt HEAD~1 main other own stash@{0} --hard main..own -- --all --amend --no-edit
    .git/config .GIT/config ../main/a.txt ../outside --stdin --update-refs --autostash pwned a.txt sub/b.txt new.txt . .. -m -am
    --exec-path=. --upload-pack=evil ext::evil refs/heads/main -B -D --git-dir=.. -C.. 'a b.txt' "a.txt" \\
    .envrc .claude/settings.json .claude '.e*' old --source=old -sold sub rc.txt
""".split()  # noqa: SIM905 - a list of a hundred words
"""Words that are added to commands; `evil` is a program, `link` leads outside, `old` has other files that configure programs."""


@dataclass(frozen=True)
class World:
    """A repository with a worktree, and the folders beside it."""

    root: Path
    kept: Path
    env: dict[str, str]

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    def fresh(self) -> None:
        """Restore the initial state."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.kept, self.root, symlinks=True)

    def git(self, *arguments: str, folder: str = "main") -> str:
        """Run Git and return its output."""
        return subprocess.run(
            ["git", *arguments], cwd=self.root / folder, env=self.env, capture_output=True, text=True, check=True
        ).stdout

    def outside(self) -> dict[str, str]:
        """Return digests of what must not change: other folders, files that configure programs, other refs, Git's configuration."""
        files = [
            path
            for folder in ("outside", "home", "main", "bin")
            for path in (self.root / folder).rglob("*")
            if ".git" not in path.parts and not path.is_dir()
        ]
        files += [self.root / "main/.git" / name for name in ("config", "HEAD", "index")]
        files += [self.workspace / name for name in (".envrc", ".claude/settings.json", ".mcp.json", "sub/HEAD")]
        digests = {str(path): _digest(path) for path in files}
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return {**digests, "refs": "\n".join(ref for ref in refs if not ref.startswith("refs/heads/own "))}


def _digest(path: Path) -> str:
    if not os.path.lexists(path):
        return "none"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path.readlink())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base = tmp_path_factory.mktemp("world")
    root = base / "live"
    for name in ("main", "outside", "home", "bin"):
        (root / name).mkdir(parents=True)
    evil = root / "bin" / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {base}/ran\n")
    evil.chmod(0o755)
    env = {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "HOME": str(root / "home"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
    }
    (root / "home/.gitconfig").write_text(
        '[user]\nname=a\nemail=a@b\n[init]\ndefaultBranch=main\n[alias]\nst=!evil\n[diff "x"]\ncommand=evil\n'
    )
    (root / "outside/canary.txt").write_text(f"{CANARY}\n")
    template = World(root, base / "kept", env)
    template.git("init", "-q", "--template=")
    (root / "main/a.txt").write_text("a\n")
    (root / "main/sub").mkdir()
    (root / "main/sub/b.txt").write_text("b\n")
    (root / "main/.claude").mkdir()
    for content in ("evil", "good"):
        for name in (".envrc", ".claude/settings.json", "rc.txt"):
            (root / "main" / name).write_text(f"{content}\n")
        template.git("add", "-A")
        template.git("commit", "-qm", content)
    for words in (
        ("branch", "old", "HEAD~1"),
        ("commit", "-qm", "one", "--allow-empty"),
        ("commit", "-qm", "two", "--allow-empty"),
        ("branch", "other"),
        ("worktree", "add", "-q", "-b", "own", "../ws"),
    ):
        template.git(*words)
    (root / "main/a.txt").write_text("mine\n")
    template.git("stash")
    workspace = template.workspace
    (workspace / "a.txt").write_text("changed\n")
    (workspace / "new.txt").write_text("new\n")
    (workspace / "a b.txt").write_text("blank\n")
    (workspace / "link").symlink_to(root / "outside")
    (workspace / "flink").symlink_to(root / "outside/canary.txt")
    for name in ("--output=pwned", "-x", "--exec=evil"):
        (workspace / name).write_text("a file named like an option\n")
    root.rename(template.kept)
    yield template
    shutil.rmtree(base, ignore_errors=True)


@st.composite
def commands(draw: st.DrawFn) -> str:
    """Draw an allowed command with hostile words added."""
    line = draw(st.sampled_from(ALLOWED))
    for _ in range(draw(st.integers(0, 3))):
        words = line.split(" ")
        at = draw(st.integers(1, len(words)))
        piece = draw(st.sampled_from(HOSTILE_WORDS))
        if draw(st.booleans()):
            words.insert(at, piece)
        else:
            words[at - 1 : at] = [piece if at > 1 else words[0]]
        line = " ".join(words)
    return line


@settings(suppress_health_check=list(HealthCheck))
@given(line=commands())
@example(line="git diff --output=../outside/canary.txt")
@example(line="git log -p --output=pwned")
@example(line="git diff --no-index a.txt flink")
@example(line="git grep -Oevil a")
@example(line="git add --pathspec-from-file=flink")
@example(line="git commit --allow-empty -F flink")
@example(line="git blame --contents=flink a.txt")
@example(line="git commit -qam x && git rebase --exec=evil HEAD~1")
@example(line="git mv a.txt link/new")
@example(line="git stash drop")
@example(line="git branch more")
@example(line="git diff *")
@example(line="git mv -f rc.txt .envrc")
@example(line="git mv rc.txt sub/HEAD")
@example(line="git checkout old -- .claude/settings.json")
@example(line="git checkout old -- .claude")
@example(line="git checkout old -- .")
@example(line="git restore --source=old .envrc")
@example(line="git restore -Wsold '.e*'")
@example(line="git rm -rf .")
@example(line="git rm -f .envrc")
@example(line="git reset old && git restore .")
@example(line="git reset --soft old && git reset && git restore .")
def test_allowed_commands_have_no_effects_outside_the_workspace(world: World, line: str) -> None:
    command = line.replace("/ws", str(world.workspace))
    verdict = check_permission("Bash", normalize_command(command), "auto-edit", (), (), str(world.workspace))
    if not verdict:
        return
    world.fresh()
    if not paths_stay_inside(world.workspace, verdict):
        return
    note(command)
    before = world.outside()
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=world.workspace,
        env=world.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )
    assert world.outside() == before, command
    assert not (world.root.parent / "ran").exists(), f"{command} ran a program"
    assert not list(world.root.glob("*/pwned")), f"{command} wrote a file"
    assert CANARY not in result.stdout + result.stderr, f"{command} read a secret"
    assert CANARY not in world.git("log", "-p", "own"), f"{command} put a secret into a commit"


def test_the_effects_of_forbidden_commands_are_detected(world: World) -> None:
    """Each of these commands breaks out, which proves that the checks work."""
    for command, effect in {
        "git diff --output=../outside/canary.txt": "outside",
        "git diff --no-index /dev/null flink/../a.txt; cat flink": "read",
        "git rebase -x evil HEAD~1": "ran",
        "git branch more": "outside",
        "git stash drop": "outside",
    }.items():
        world.fresh()
        before = world.outside()
        done = subprocess.run(
            ["sh", "-c", command], cwd=world.workspace, env=world.env, capture_output=True, text=True, check=False
        )
        if command.startswith("git rebase"):
            world.fresh()
            for arguments in (("add", "-A"), ("commit", "-qm", "x"), ("rebase", "-x", "evil", "HEAD~1")):
                world.git(*arguments, folder="ws")
        effects = {
            "outside": world.outside() != before,
            "read": CANARY in done.stdout,
            "ran": (world.root.parent / "ran").exists(),
        }
        (world.root.parent / "ran").unlink(missing_ok=True)
        assert effects[effect], command
