"""The daemon's own life: `ao start`, `ao shutdown`, `ao dashboard`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from agent_orchestrator.cli import browser, out
from agent_orchestrator.cli.common import client, first_use_options, json_option
from agent_orchestrator.client.daemon_client import Client, NotRunning, alive
from agent_orchestrator.errors import AoError, Conflict, UsageError

CLONE_TIMEOUT = 3600.0
_REMOTE = re.compile(r"[a-z+]+://\S+|[\w.-]+@[\w.-]+:\S+")


@click.command()
@click.argument("where", metavar="[PATH or URL]", required=False)
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), help="The dashboard's port instead of 3000.")
@click.option("--host", metavar="ADDRESS", help="The dashboard's address instead of 127.0.0.1.")
@click.option("--tls", is_flag=True, help="Serve the dashboard by TLS, with a certificate of its own, made once.")
@click.option("--tls-cert", metavar="FILE", help="Serve it by TLS with this certificate (PEM) …")
@click.option("--tls-key", metavar="FILE", help="… and this key.")
@click.option("--insecure", is_flag=True, help="Let other machines reach it without TLS.")
@click.option("--no-open", is_flag=True, help="Do not open the dashboard.")
@first_use_options
@click.option("--orchestrator", is_flag=True, help="Start the coordinating agent of the repository too.")
@click.option("--foreground", is_flag=True, help="Run the daemon here, not in the background.")
@click.option(
    "--at-login/--no-at-login",
    default=None,
    help="Have the daemon started when you log in, from now on; or no more, which is all that is done then.",
)
@click.option("--demo", is_flag=True, help="Show five scripted agents at work, in a home and repository of their own.")
@click.option("--all", "everything", is_flag=True, help="With --demo: show every trigger of a reaction too.")
def start(
    where: str | None,
    port: int | None,
    host: str | None,
    tls: bool,
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    no_open: bool,
    yes: bool,
    no_prove: bool,
    orchestrator: bool,
    foreground: bool,
    at_login: bool | None,
    demo: bool,
    everything: bool,
) -> None:
    """Start the daemon, register the repository here and open the dashboard.

    With a PATH the repository there, with a URL a clone of it. On first use agent-orchestrator.yaml is written, and its set-up and
    tests are proven, as `ao init` does. A --host that other machines reach needs TLS, or --insecure.
    """
    if demo:
        more = ["--all"] if everything else []
        os.execv(sys.executable, [sys.executable, "-P", "-m", "agent_orchestrator.testing.demo", *more])
    if everything:
        raise UsageError("--all says how much the demo shows", "ao start --demo --all")
    arguments = [
        *(["--port", str(port)] if port is not None else []),
        *(["--host", host] if host else []),
        *(["--tls"] if tls else []),
        *(["--tls-cert", os.path.abspath(os.path.expanduser(tls_cert))] if tls_cert else []),
        *(["--tls-key", os.path.abspath(os.path.expanduser(tls_key))] if tls_key else []),
        *(["--insecure"] if insecure else []),
    ]
    if at_login is False:
        from agent_orchestrator.cli.daemon.at_login import disable

        out.show(disable(client(start=False)))
        return
    if at_login and foreground:
        raise UsageError("--foreground runs the daemon here, --at-login by the system", "give one of them")
    body = project_body(where)
    file = configuration(body)
    own = ["--config", file] if file else []
    register = partial(_register, yes=yes, no_prove=no_prove, orchestrator=orchestrator)
    ao = client()
    if foreground:
        _run_here(ao, arguments + own, body, no_open, register)
    if at_login:
        _at_login(ao, arguments + own)
    if not ao.ensure(arguments + own) and arguments:
        _refuse_other_address(ao, port, host, secure=tls or bool(tls_cert))
    if ao.info().get("standby") and _stands_by(ao):
        return
    if body is None:
        out.note("no repository here: ao start PATH registers one")
    else:
        register(ao, body)
    _show_dashboard(ao, no_open)


def _at_login(ao: Client, arguments: list[str]) -> None:
    """Let the system start the daemon, now too; it is given a moment to do so."""
    from agent_orchestrator.cli.daemon.at_login import enable

    out.show(enable(ao, arguments))
    until = time.monotonic() + 15.0
    while time.monotonic() < until:
        try:
            with Client(ao.home, start=False) as running:
                running.request("GET", "/healthz", timeout=5.0)
            return
        except NotRunning:
            time.sleep(0.05)


def _stands_by(ao: Client) -> bool:
    """Say so, if another daemon is active on the same database."""
    health = ao.get("/healthz")
    if health["status"] != "standby":
        return False
    active = health["active"]
    who = f"{active['host']}'s daemon (pid {active['pid']}, since {active['since']})" if active else "another daemon"
    there = f"  {active['url']}" if active and active["url"] else ""
    out.show([f"standby: {who} is active", *([there] if there else []), "  this one takes over when that one is gone"])
    return True


def _register(
    ao: Client, body: dict[str, Any], *, yes: bool, no_prove: bool, orchestrator: bool, asks: bool = True
) -> None:
    """Make the repository a project; with its coordinating agent, if that is wanted."""
    project = ao.post("/api/projects", body, timeout=CLONE_TIMEOUT)
    introduce(ao, project, yes=yes, no_prove=no_prove, ask=asks and "url" not in body, first=True)
    if orchestrator:
        from agent_orchestrator.cli.sessions.orchestrator import begin

        session = begin(ao, {"projectId": project["id"]})["session"]
        print(f"coordinating agent {session['id']}: give it a goal with `ao orchestrator GOAL`")


def project_body(where: str | None) -> dict[str, Any] | None:
    """What to register: the repository at a path or URL, or the one here; none if there is none here."""
    if where is not None and not where.strip():
        raise UsageError("the path is empty", "give a folder or a URL")
    if where is not None and not os.path.exists(os.path.expanduser(where)) and _REMOTE.fullmatch(where):
        return {"url": where, "init": True}
    path = os.path.abspath(os.path.expanduser(where or "."))
    if where is None and not _in_repository(path):
        return None
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a folder", "give the folder of a Git repository, or a URL")
    return {"path": path, "init": True}


def configuration(body: dict[str, Any] | None) -> str | None:
    """The file whose port, host and database count when the daemon is started here; none if there is none."""
    if named := os.environ.get("AO_CONFIG"):
        return os.path.abspath(os.path.expanduser(named))
    path = str((body or {}).get("path") or "")
    while path:
        for name in ("agent-orchestrator.yaml", "agent-orchestrator.yml"):
            if os.path.isfile(os.path.join(path, name)):
                return os.path.join(path, name)
        above = os.path.dirname(path)
        path = "" if above == path else above
    return None


def _in_repository(path: str) -> bool:
    while not any(os.path.exists(os.path.join(path, name)) for name in (".git", "agent-orchestrator.yaml", "HEAD")):
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True


_SCRIPTED = (
    ", which is scripted and asks no model: no other was in your login shell's PATH when the daemon started. `ao agents` "
    "lists them; after installing one: ao shutdown, then ao config set defaults.agent NAME"
)


def introduce(
    ao: Client,
    project: dict[str, Any],
    *,
    yes: bool = False,
    no_prove: bool = False,
    ask: bool = True,
    first: bool = False,
) -> dict[str, Any] | None:
    """Show a project that was just registered, and have proven what was detected there; returns the proof, if there is one.

    `first`: only where its configuration was just written.
    """
    proposal = project.get("proposal")
    if not proposal or (first and not project.get("created")):
        show_project(project)
        return None
    from agent_orchestrator.cli.setup.proof import proof_lines, propose

    proof = propose(ao, project, yes=yes, no_prove=no_prove, ask=ask)
    if proof:
        out.show(proof_lines(proof))
        project = project | {"trusted": True}
    show_project(project, wrote=proof is None, asks_trust=False)
    return proof


def show_project(project: dict[str, Any], *, wrote: bool = True, asks_trust: bool = True) -> None:
    """Show a project that was just registered, what was written, and whether it waits for trust, as far as that was not said."""
    if created := project.get("created"):
        if wrote:
            print(f"wrote {out.one_line(created)}")
        if agent := project.get("agent"):
            print(f"agent {agent}{_SCRIPTED if agent == 'demo' else ''}")
    details = [
        f"default branch {project['defaultBranch']}" if project.get("defaultBranch") else "",
        str(project.get("repo") or ""),
    ]
    found = f"{project.get('path')} ({', '.join(filter(None, details)) or 'local'})"
    print(f"project {project['id']}: {out.one_line(found)}")
    if asks_trust and project.get("trusted") is False:
        out.note(
            "the commands in its configuration do not run yet: `ao trust` shows and allows them, `ao init --check` proves them too"
        )


def _show_dashboard(ao: Client, no_open: bool) -> None:
    """After a start: in the browser, if a person sits here and wants it."""
    if no_open:
        out.show([*browser.where(ao.info()), "  `ao dashboard` opens it, signed in"])
    else:
        browser.show_dashboard(ao, opening=sys.stdout.isatty())


def _refuse_other_address(ao: Client, port: int | None, host: str | None, *, secure: bool) -> None:
    running = str(ao.info().get("url") or "")
    scheme, _, rest = running.partition("://")
    now_host, _, now_port = rest.rstrip("/").rpartition(":")
    if (port and str(port) != now_port) or (host and host != now_host) or (secure and scheme != "https"):
        raise Conflict(
            f"the daemon already runs at {running}", "`ao shutdown` first, then start it with another address"
        )


def _run_here(
    ao: Client, arguments: list[str], body: dict[str, Any] | None, no_open: bool, register: Callable[..., None]
) -> None:
    """Become the daemon; a child registers the project once it answers."""
    try:
        with Client(ao.home, start=False) as running:
            running.request("GET", "/healthz")
    except NotRunning:
        pass
    else:
        raise Conflict(f"the daemon already runs with pid {ao.info().get('pid')}", "`ao shutdown` stops it")
    if hasattr(os, "fork") and os.fork() == 0:
        if os.fork() == 0:
            _register_later(ao.home, body, no_open, register)
        os._exit(0)
    sys.stdout.flush()
    argv = [sys.executable, "-P", "-m", "agent_orchestrator.daemon", "--foreground", *arguments]
    os.execve(argv[0], argv, ao.daemon_environment())


def _register_later(home: str, body: dict[str, Any] | None, no_open: bool, register: Callable[..., None]) -> None:
    ao = Client(home, start=False, notice=out.note)
    until = time.monotonic() + 15.0
    while time.monotonic() < until:
        try:
            if body is not None:
                register(ao, body, asks=False)
            _show_dashboard(ao, no_open)
        except NotRunning:
            time.sleep(0.05)
            continue
        except AoError as error:
            out.note(str(error))
        break
    sys.stdout.flush()
    os._exit(0)


@click.command()
@click.option("--sessions", is_flag=True, help="Stop the sessions too; their work is saved.")
def shutdown(sessions: bool) -> None:
    """Stop the daemon; sessions run on.

    They are adopted at the next start, which any command brings about. With --sessions a daemon that does not run is
    started to stop them.
    """
    ao = client(start=False)
    needed = sessions and os.path.exists(
        os.path.join(ao.home, "daemon.lock")
    )  # else there was never one, nor a session
    if needed:
        client().get("/healthz")
    info = ao.info()
    try:
        ao.request("POST", "/api/shutdown", {"sessions": sessions}, timeout=600.0 if sessions else 60.0)
    except NotRunning:
        if needed:
            raise
        print("The daemon is not running.")
        return
    ao.close()
    until = time.monotonic() + 60.0
    while _runs(ao, info):
        if time.monotonic() > until:
            raise AoError(f"the daemon (pid {info.get('pid')}) has not ended after 60 s", f"see {ao.log}")
        time.sleep(0.02)
    print("The daemon and all sessions are stopped." if sessions else "The daemon is stopped; sessions run on.")


def _runs(ao: Client, info: dict[str, Any]) -> bool:
    """Whether the daemon that wrote this is still there: it answers, or its process lives."""
    try:
        ao.request("GET", "/healthz", timeout=5.0, repeat=False)
        return bool(ao.info().get("pid") == info.get("pid"))
    except AoError:
        return isinstance(info.get("pid"), int) and alive(info["pid"])
    finally:
        ao.close()


@click.command()
@click.option("--no-open", is_flag=True, help="Print the link that signs in, and open nothing.")
@json_option
def dashboard(no_open: bool, as_json: bool) -> None:
    """Open the dashboard in the browser, signed in.

    Over SSH, or where no browser can be shown, the link that signs in is printed: good once, for two minutes.
    """
    ao = client()
    if not as_json:
        browser.show_dashboard(ao, opening=not no_open)
        return
    made = ao.post("/api/login-links")
    out.print_json({"url": ao.info().get("url"), "link": made["url"], "expiresAt": made["expiresAt"]})
