"""Path checks of permission requests: the files of the workspace are examined, locally and on another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.sessions.permissions.path_checks import paths_stay_inside, paths_stay_inside_remote
from agent_orchestrator.sessions.permissions.rules import check_permission

pytestmark = pytest.mark.anyio
HOOKS = ("tools/hooks",)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "ws"
    for folder in ("src", ".git", ".claude", "tools/hooks", "lib/objects", "lib/refs"):
        (workspace / folder).mkdir(parents=True)
    for name in ("src/a.py", "src/b.py", "lib/HEAD", ".claude/settings.json"):
        (workspace / name).write_text("x\n")
    for name, target in (
        ("ai", ".claude"),
        ("out", "/etc"),
        ("run", "tools/hooks"),
        ("db", ".git"),
        ("src/linked.py", "../lib"),
    ):
        (workspace / name).symlink_to(target)
    return workspace


@pytest.mark.parametrize(
    ("tool", "command", "expected"),
    [
        ("edit", "src/a.py", True),
        ("edit", "src/new/b.py", True),
        ("edit", "config", True),
        ("read", "lib/config", True),
        ("read", "ai/settings.json", True),
        ("edit", "lib/config", False),
        ("edit", "lib/objects/x", False),
        ("edit", "lib/deep/er/x", False),
        ("edit", "ai/settings.json", False),
        ("edit", "run/pre-commit", False),
        ("edit", "out/passwd", False),
        ("edit", "db/config", False),
        ("Bash", "git add src ai", True),
        ("Bash", "git status -- lib", True),
        ("Bash", "git checkout main -- src/a.py src/b.py", True),
        ("Bash", "git checkout -- src/gone.py", True),
        ("Bash", "git checkout -- src", True),
        ("Bash", "git restore src/*.py", True),
        ("Bash", "git mv src/a.py src/b.py", True),
        ("Bash", "git checkout main -- src", False),
        ("Bash", "git checkout main -- gone", False),
        ("Bash", "git checkout main -- src/a.py src/gone.py", False),
        ("Bash", "git restore --source main -- gone.d", False),
        ("Bash", "git restore -s main -- src/linked.py", False),
        ("Bash", "git restore --source=main src/a.py tools", False),
        ("Bash", "git mv src/a.py ai/settings.json", False),
        ("Bash", "git mv src/a.py run/pre-commit", False),
        ("Bash", "git rm ai/settings.json", False),
    ],
)
async def test_requests_are_compared_with_the_files_of_the_workspace(
    workspace: Path, tool: str, command: str, expected: bool
) -> None:
    verdict = check_permission(tool, command, "auto-edit", (), (), str(workspace), hooks=HOOKS)
    assert verdict, "by its letters"
    assert paths_stay_inside(workspace, verdict, HOOKS) is expected
    assert await paths_stay_inside_remote(LocalHost(), workspace, verdict, HOOKS) is expected
