"""The action `command` of rules: run a configured command in the session's workspace, with the session's environment
and a time limit.

Nothing from outside becomes part of the command: what happened is passed as a JSON file, named by `$AO_REACTION_FILE`.
A command that was running when the daemon died is ended and run again; `$AO_REPEATED` and its event say so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.errors import AoError, Conflict, Temporary
from agent_orchestrator.fleet.notifications.quiet_hours import QuietHours
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.plugins.runtimes.process_tree import stop_process_tree
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part

LAST_LINES = 20
MAX_LOG_BYTES = 4 << 20
"""The most bytes of output that are kept in the log."""


class CommandAction(Part):
    """Runs the commands of rules."""

    def __init__(self, core: Core, specs: SessionSpecs, quiet: QuietHours) -> None:
        super().__init__(core)
        self.specs = specs
        self.quiet_hours = quiet

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"command": Effect(self.run, record_attempt_first=True)}

    async def run(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Run a rule's command to its end; return the event with its output and exit code, and a notification if it failed."""
        facts = self.flow.sessions[intent.session]
        reaction_file = self._reaction_file(facts, intent)
        if attempts:
            await self._stop_leftover(reaction_file)
        rules = self.flow.rules(facts.project, facts.spec.profile)
        rule = next((item for item in rules if item.name == intent.args["rule"] and item.command), None)
        if rule is None:
            return []
        try:
            body = await self._run(facts, rule, intent, reaction_file, repeated=attempts > 0)
        except AoError as error:
            body = e.CommandFinished(rule.name, None, f"it could not be run: {error}", repeated=attempts > 0)
        events: list[e.Body] = [body]
        if body.code != 0:
            outcome = "was ended by its time limit" if body.code is None and body.log else f"exited with {body.code}"
            text = f"the command {outcome if body.log else 'did not run'}\n{body.output}".strip()
            title = f"{facts.id}: the command of rule {rule.name} failed"
            events.append(
                self.quiet_hours.gate(facts.project, e.Notified(rule.trigger, title, text, rule.priority or "warning"))
            )
        now, source = self.clock(), f"rule {rule.name}"
        return [
            Event(item, now, source, f"{intent.key}:{number}", facts.project, facts.id)
            for number, item in enumerate(events)
        ]

    def _reaction_file(self, facts: SessionFacts, intent: Intent) -> Path:
        """Return the path of the JSON file that describes to the command what happened; unique per command."""
        digest = hashlib.sha256(intent.key.encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9._-]", "-", str(intent.args["rule"]))
        return self.home.session(facts.id) / "reactions" / f"{name}-{digest}.json"

    async def _stop_leftover(self, reaction_file: Path) -> None:
        """Stop the processes of this command that an earlier daemon left running; they have the file's name in their environment."""
        while processes := self.host.processes_with_variable("AO_REACTION_FILE", str(reaction_file)):
            await asyncio.gather(*(stop_process_tree(self.host, process, 0.0) for process in processes))

    async def _run(
        self, facts: SessionFacts, rule: Rule, intent: Intent, reaction_file: Path, *, repeated: bool
    ) -> e.CommandFinished:
        project = self.core.settings.project(facts.project)
        await self.core.projects.check_trust(project, facts.spec.profile, reactions=True)
        site = self.core.sites.for_session(facts)
        if (
            facts.workspace is None
            or not facts.workspace.present
            or not await site.folder_exists(Path(facts.workspace.path))
        ):
            raise Conflict(f"{facts.id} has no workspace", f"bring it back: ao restore {facts.id}")
        await self.core.sites.local.login_ready.wait()
        reaction_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = reaction_file.with_suffix(".log")
        reaction_file.write_text(
            json.dumps(dict(intent.args.get("variables") or {}), ensure_ascii=False), encoding="utf-8"
        )
        env = {
            **self.specs.environment(facts, agent=False),
            "AO_RULE": rule.name,
            "AO_TRIGGER": rule.trigger,
            "AO_ATTEMPT": str(intent.args.get("attempt", 1)),
            "AO_REACTION_FILE": str(reaction_file),
            **({"AO_REPEATED": "1"} if repeated else {}),
        }
        last: deque[str] = deque(maxlen=LAST_LINES)
        loop = asyncio.get_running_loop()
        started_at, logged_bytes = loop.time(), 0
        code: int | None
        with log.open("w", encoding="utf-8", errors="replace") as file:

            def write_line(line: str) -> None:
                nonlocal logged_bytes
                last.append(clean_text(line)[:500])
                logged_bytes += len(line) + 1
                if logged_bytes <= MAX_LOG_BYTES:
                    file.write(f"{line}\n")

            output = REDACTOR.line_filter(write_line)
            try:
                code = await site.host.stream(
                    rule.command, output.feed, cwd=Path(facts.workspace.path), env=env, timeout=rule.timeout, grace=2.0
                )
            except Temporary:
                code = None
                output.feed(f"ended: it ran for over {rule.timeout:g} s")
            finally:
                output.finish()
        return e.CommandFinished(
            rule.name, code, "\n".join(last), str(log), round(loop.time() - started_at, 3), repeated=repeated
        )
