"""`python -m agent_orchestrator.testing.forge github`: run a test forge by hand, with a Python prompt to act as its users."""

from __future__ import annotations

import argparse
import code
import contextlib
import reprlib
import signal
import sys
import threading
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.jira import JiraServer
from agent_orchestrator.testing.linear import LinearServer

REPO = "acme/app"
SECRET = "s3cret"
FILES = {"README.md": "# App\n", "a.txt": "1\n2\n3\n"}


def main() -> int:
    """Serve until the prompt ends, or without a terminal until a signal."""
    parser = argparse.ArgumentParser(prog="python -m agent_orchestrator.testing.forge", description=__doc__)
    parser.add_argument("kind", choices=("github", "gitlab", "linear", "jira"))
    parser.add_argument("--port", type=int, default=0, help="where it listens; absent: any free port")
    options = parser.parse_args()
    make_stage = {"github": _github, "gitlab": _gitlab, "linear": _linear, "jira": _jira}[options.kind]
    server, names, lines = make_stage(options.port)
    banner = "\n".join([*lines, f"at this prompt: {', '.join(['forge', *names])}; end it with Ctrl-D"])
    with server:
        if sys.stdin.isatty():
            sys.displayhook = _show
            code.interact(banner, local={"forge": server, **names}, exitmsg="")
        else:
            sys.stdout.write(f"{banner}\n")
            sys.stdout.flush()
            ended = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: ended.set())
            with contextlib.suppress(KeyboardInterrupt):
                ended.wait()
    return 0


def _show(value: object) -> None:
    """Print a shortened value; these objects refer to each other and would print endlessly."""
    short_repr = reprlib.Repr()
    short_repr.maxother = short_repr.maxstring = 200
    if value is not None:
        sys.stdout.write(f"{short_repr.repr(value)}\n")


Stage = tuple[Any, dict[str, Any], list[str]]
"""A server, the names that are defined at the prompt, and the lines of its banner."""


def _github(port: int) -> Stage:
    forge = GitHubServer(port=port)
    repo = forge.repository(REPO, FILES, people={"dev": "write", "rev": "write"})
    issue = forge.issue(REPO, "Count to four", "a.txt ends at 3.", by="rev")
    return forge, {"repo": repo, "issue": issue}, _code_lines(forge.url, "github", forge.token("dev"))


def _gitlab(port: int) -> Stage:
    forge = GitLabServer(port=port)
    repo = forge.repository(REPO, FILES, people={"dev": "developer", "rev": "developer"})
    issue = forge.issue(REPO, "Count to four", "a.txt ends at 3.", by="rev")
    return forge, {"repo": repo, "issue": issue}, _code_lines(forge.url, "gitlab", forge.token("dev"))


def _linear(port: int) -> Stage:
    linear = LinearServer(port=port)
    linear.user("rev")
    team = linear.team("LIN")
    issue = linear.issue(team, "Count to four", "a.txt ends at 3.", by="rev")
    options = f'{{plugin: linear, team: LIN, apiUrl: "{linear.api}", webhook: {{secret: {SECRET}}}}}'
    return linear, {"team": team, "issue": issue}, _tracker_lines("LINEAR_API_KEY", linear.token("dev"), options)


def _jira(port: int) -> Stage:
    jira = JiraServer(port=port)
    project = jira.project("APP", members=("dev", "rev"))
    issue = jira.issue(project, "Count to four", by="rev")
    options = f'{{plugin: jira, url: "{jira.url}", project: APP, webhook: {{secret: {SECRET}}}}}'
    return jira, {"project": project, "issue": issue}, _tracker_lines("JIRA_API_TOKEN", jira.token("dev"), options)


def _code_lines(url: str, kind: str, token: str) -> list[str]:
    user = "oauth2" if kind == "gitlab" else "x-access-token"
    address = url.replace("://", f"://{user}:{token}@")
    return [
        f"export FORGE_TOKEN={token}",
        f"git clone {address}/{REPO}.git",
        f"repo: {REPO}",
        f'scm: {{plugin: {kind}, apiUrl: "{url}", token: "${{FORGE_TOKEN}}", webhook: {{secret: {SECRET}}}}}',
        f'tracker: {{plugin: {kind}, apiUrl: "{url}", token: "${{FORGE_TOKEN}}"}}',
    ]


def _tracker_lines(variable: str, token: str, options: str) -> list[str]:
    return [f"export {variable}={token}", f"tracker: {options}"]


if __name__ == "__main__":
    sys.exit(main())
