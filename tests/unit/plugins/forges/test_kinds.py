"""Which forge an address is at."""

from __future__ import annotations

import pytest

from agent_orchestrator.changes.forge_sync.connections import forge_kind


@pytest.mark.parametrize(
    ("repo", "kind"),
    [
        ("owner/name", "github"),
        ("gitlab/name", "github"),
        ("gitlab-org/gitlab.js", "github"),
        ("https://github.com/gitlab/name", "github"),
        ("git@github.com:owner/gitlab.git", "github"),
        ("git.example.com/owner/name", "github"),
        ("gitlab.com/group/sub/name", "gitlab"),
        ("git@gitlab.com:group/name.git", "gitlab"),
        ("https://gitlab.example.com/group/name", "gitlab"),
        ("ssh://git@gitlab.example.com:2222/group/name.git", "gitlab"),
        ("", "github"),
    ],
)
def test_the_kind_of_a_forge_follows_from_its_host(repo: str, kind: str) -> None:
    assert forge_kind(repo) == kind
