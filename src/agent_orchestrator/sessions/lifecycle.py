"""A session's life, carried out: make its workspace, launch its agent, deliver messages, stop, save, clean up.

Each function here is an effect: it takes an intent, touches the outside through plugins that may be called again after a crash,
and returns the events that tell what happened.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.config.effective import AgentSettings
from agent_orchestrator.config.tokens import Tokens
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again, Effect, patient
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Message, SessionFacts
from agent_orchestrator.core.fold.sessions import ended_key
from agent_orchestrator.core.reactions import COORDINATOR, Intent, stuck_after
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.errors import AoError, Conflict, Denied, Temporary
from agent_orchestrator.plugins.runtimes import launch_checks
from agent_orchestrator.protocols import (
    AgentContext,
    AgentLaunch,
    AgentRun,
    Container,
    Delivered,
    Delivers,
    Delivery,
    Furnishes,
    Handle,
    Headless,
    Held,
    LaunchSpec,
    Listens,
    Permission,
    Submits,
    Typable,
    Types,
    Undeliverable,
    WorkspaceInfo,
    WorkspaceSpec,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions import launch_record
from agent_orchestrator.sessions.agents import prompts
from agent_orchestrator.sessions.agents.listener import agent_run
from agent_orchestrator.sessions.environment import AGENT_SECRETS, agent_environment, session_variables
from agent_orchestrator.sessions.isolation import containers, sandbox
from agent_orchestrator.sessions.plugins import Plugins, handle_of
from agent_orchestrator.sessions.rescue import Rescue, left_behind
from agent_orchestrator.sessions.site import Site
from agent_orchestrator.sessions.usage_wait import Wait

QUIET_ENOUGH = 0.4
"""Seconds without output after which an agent that cannot say so counts as ready for its first prompt."""
FIRST_WORD_WITHIN = 3.0
"""Seconds after its start that an agent which has its task has to say its first word, before it is spoken to."""
READY_WITHIN = 20.0
SUBMIT_AFTER, SUBMIT_TRIES = 2.0, 5
"""How often, and after how many seconds, it is made sure that a typed message was sent off."""
KNOWN_READY_WITHIN = 120.0
"""Seconds that a CLI whose plugin knows it gets: a busy machine must not make us type into one that does not listen yet."""
INTERRUPTED_WITHIN = 3.0
LONGEST_HOLD = 60.0
"""Seconds after which it is asked again whether an agent may be spoken to."""
TRUST_PAUSE = 30.0
"""Seconds until it is asked again whether a configuration is trusted."""

UNREACHABLE_PAUSE = 0.5
"""Seconds after which it is looked again whether a session's node can be reached."""

Carry = Callable[[Intent, int], Awaitable[Sequence[Event]]]
"""Carries out an intent, given how often that was tried before."""

Output = Callable[[str, str], None]
"""Session and a line of live output, for whoever waits."""


class Lifecycle:
    """The effects of sessions."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        host: Host,
        plugins: Plugins,
        tokens: Tokens,
        watch: Watch,
        output: Output,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.tokens = tokens
        self.watch = watch
        self.output = output
        self.after_landing: Callable[[SessionFacts], Awaitable[str]] | None = None
        self.may_go: Callable[[SessionFacts], Wait | None] = lambda _facts: None
        """Asked before an agent is started or spoken to."""
        self.distrust: Callable[[SessionFacts], str] = lambda _facts: ""
        """What would be used for a session that came with the repository and nobody trusts; nothing: nothing."""
        self.catch_up: Callable[[str], Awaitable[None]] = _nothing
        """Hears what an agent has said up to now."""
        self.carry: Callable[[SessionFacts], Awaitable[bool]] = _nowhere
        """Brings the agent's conversation to the session's node; false: it is lost."""
        self._submitting: set[asyncio.Task[None]] = set()
        self._steady, self._began = steady, steady()
        self._launched: dict[str, float] = {}
        """By session: when this daemon started its agent, by a clock that does not jump."""

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {
            "prepare": Effect(self.reaching(self.prepare), fatal="making its workspace"),
            "launch": Effect(self.reaching(self.launch), fatal="starting its agent"),
            "deliver": Effect(self.deliver, ambiguous=True, even_if_stale=True),
            "publish": Effect(patient(self.reaching(self.publish))),
            "stop": Effect(self.reaching(self.stop), fatal="stopping its agent"),
            "clean-up": Effect(self.reaching(self.clean_up), fatal="cleaning up"),
            "silence": Effect(self.silence),
        }

    def reaching(self, run: Carry) -> Carry:
        """An effect on a node that cannot be reached waits for it: either it comes back, or it is lost and the facts are others."""

        async def carried(intent: Intent, attempts: int) -> Sequence[Event]:
            try:
                if not self._reachable(intent):
                    raise Again(UNREACHABLE_PAUSE)
                return await run(intent, attempts)
            except Temporary:
                if not self._reachable(intent):
                    raise Again(UNREACHABLE_PAUSE) from None
                raise

        return carried

    def _reachable(self, intent: Intent) -> bool:
        facts = self._facts(intent)
        return facts.node is None or self.plugins.site_of(facts).reachable

    def _facts(self, intent: Intent) -> SessionFacts:
        return self.flow.sessions[intent.session]

    def _event(self, facts: SessionFacts, body: e.Body, key: str, generation: int = 0, source: str = "daemon") -> Event:
        return Event(body, self.flow.clock(), source, key, facts.project, facts.id, generation)

    # -- workspace -----------------------------------------------------------------------------------------------------

    def workspace_spec(self, facts: SessionFacts, site: Site | None = None) -> WorkspaceSpec:
        """What a session's workspace is to be, or was on another site."""
        site = site or self.plugins.site_of(facts)
        project, spec = self.plugins.project(facts.project), facts.spec
        copied = facts.place.copied if facts.place and facts.place.present else ()
        return WorkspaceSpec(
            session=facts.id,
            repo=Path(spec.repo),
            path=Path(spec.path),
            link=Path(spec.link) if spec.link else None,
            private=site.home.session(facts.id),
            branch=facts.branch,
            base=facts.base,
            existing=spec.existing or facts.place is not None,
            last=(facts.head or "") if facts.place else "",
            copy=tuple(dict.fromkeys((*project.copy, *copied))),
            symlinks=project.symlinks,
            sparse=project.sparse,
            post_create=project.post_create,
            env=self.environment(facts, site=site, agent=False),
        )

    async def prepare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Make the workspace; on a restore, bring back what was saved."""
        facts = self._facts(intent)
        if used := self.distrust(facts):
            raise Denied(
                f"the configuration of {facts.project} is not trusted ({used})", "read it, then trust it: ao trust"
            )
        await self.plugins.here.login_ready.wait()
        self.home.session(facts.id).mkdir(mode=0o700, parents=True, exist_ok=True)
        site, spec = self.plugins.site_of(facts), self.workspace_spec(facts)
        made = await self.plugins.workspace_of(facts).create(spec, lambda line: self.output(facts.id, line))
        if isinstance(runtime := self.plugins.runtime_of(facts), Furnishes) and (container := self._container(facts)):
            await runtime.furnish(container, lambda line: self.output(facts.id, line))
        notes = made.notes
        if facts.rescues or facts.moves:
            back = await site.bring_back(spec)
            notes = (*notes, back.waiting) if back.waiting else notes
        forgot = facts.remote and not await self.carry(facts)
        base = facts.place.base_commit if facts.place else made.base_commit
        body = replace(_created(made, spec), base_commit=base, notes=notes, forgot=forgot)
        return [self._event(facts, body, f"{intent.key}:done")]

    async def publish(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Bring a workspace's commits into the main repository."""
        facts = self._facts(intent)
        head = facts.head or ""
        await self.plugins.workspace_of(facts).publish(self.workspace_spec(facts))
        return [self._event(facts, e.WorkPublished(head), f"{intent.key}:done")]

    # -- agent ---------------------------------------------------------------------------------------------------------

    def environment(
        self,
        facts: SessionFacts,
        generation: int | None = None,
        *,
        contained: bool = False,
        site: Site | None = None,
        agent: bool = True,
    ) -> dict[str, str]:
        """The whole environment of a session's agent, and of its shells.

        `contained`: of an agent in a container; `agent`: with what it logs in with, which other programs have no need of.
        """
        settings, site = self.plugins.settings(facts), site or self.plugins.site_of(facts)
        private = site.home.session(facts.id)
        number = generation or max(1, facts.generation)
        own = session_variables(
            session=facts.id,
            project=facts.project,
            workspace=Path(facts.spec.path),
            branch=facts.branch,
            base=facts.base,
            task_file=private / "task.md",
            spool=site.home.spool(facts.id, number),
            inbox=private / "inbox.jsonl",
            url=site.url,
            token=self.tokens.for_session(facts.id, number),
            ports=facts.spec.ports,
        )
        git_env = dict(facts.place.git_env) if facts.place else {}
        own["AO_HOME"] = str(site.home.path)  # its own `ao` asks this daemon, and starts no other
        secrets, login = AGENT_SECRETS.get(settings.tool, ()) if agent else (), site.login
        if contained:
            login = containers.login_inside(login, secrets, private)
        return agent_environment(login, settings.env, {**git_env, **own}, secrets)

    def _container(self, facts: SessionFacts, env: Mapping[str, str] | None = None) -> Container | None:
        """The container that its agent is to live in."""
        if facts.spec.runtime != containers.RUNTIME:
            return None
        project, settings = self.plugins.project(facts.project), self.plugins.settings(facts)
        site, repo = self.plugins.site_of(facts), Path(facts.spec.repo)
        return containers.container_of(project, settings, repo, site.home.session(facts.id), env or {}, site.url)

    async def launch(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Start the agent: at first with its task, later with the message it is started for, or where it left off."""
        facts, generation = self._facts(intent), intent.generation
        assert facts.place is not None
        self.plugins.in_force(facts.project)  # without that it would start without its walls
        if not await self.plugins.site_of(facts).present(Path(facts.place.path)):
            raise Conflict(
                f"the workspace {facts.place.path} is not there any more",
                f"make it anew: ao stop {facts.id}, then ao restore {facts.id}",
            )
        await self.plugins.here.login_ready.wait()
        facts = self._facts(intent)
        if (put_off := self._put_off(facts, intent)) is not None:
            return [put_off]
        first, private = facts.launch is None, self.home.session(facts.id)
        if contained := facts.spec.runtime == containers.RUNTIME:
            containers.tidy_home(private)
        env = self.environment(facts, generation, contained=contained)
        begun = launch_record.kept(private, generation, facts.run, facts.moves)
        if begun is None:
            self._doubt_given(facts, generation)
            begun = await self._begin(facts, generation, env, first)
            launch_record.keep(private, generation, facts.run, begun, facts.moves)
        plan, prompt = begun.plan, begun.prompt
        taken = next((one for one in facts.messages if one.id == begun.message and one.pending), None)
        if taken and plan.paste is None:
            await self._append_to_inbox(facts, taken)  # before the program can look for it
        handle = await self._start(facts, generation, plan, env)
        self._launched[facts.id] = self._steady()
        launched = e.AgentLaunched(
            asdict(handle),
            resumed=not first,
            conversation=plan.conversation,
            env_notes=self._notes(facts),
            inbox=plan.inbox,
            memo=dict(plan.memo),
        )
        events = [self._event(facts, launched, f"{intent.key}:done", generation)]
        if plan.paste is None:
            if prompt and not plan.waits and not isinstance(self.plugins.agent_of(facts), Listens):
                active = e.AgentActivity("active")
                events.append(self._event(facts, active, f"{intent.key}:active", generation, "process"))
            if taken:
                events.append(self._event(facts, e.MessageDelivered(taken.id), f"delivered:{taken.id}", generation))
        elif plan.paste and not taken:
            queued = e.MessageQueued(f"task-{facts.id}-{generation}", plan.paste, "daemon", task=True)
            events.append(self._event(facts, queued, f"{intent.key}:prompt", generation))
        return events

    def _put_off(self, facts: SessionFacts, intent: Intent) -> Event | None:
        """A start that may not be gives its place back; a message that an ended agent would be started for waits."""
        begun = launch_record.kept(self.home.session(facts.id), intent.generation, facts.run, facts.moves)
        later = None if begun else self._for_trust(facts) or self.may_go(facts)
        if later is None:
            return None
        if facts.launched_run != facts.run:
            return self._event(facts, e.StartPutOff(later.reason), f"{intent.key}:put-off")
        message = facts.next_message
        raise Again(self._pause(later), *(self._held(facts, message, f"waits for {later.reason}") if message else ()))

    def _for_trust(self, facts: SessionFacts) -> Wait | None:
        used = self.distrust(facts)
        return (
            Wait(f"your trust in its configuration ({used}): ao trust", self.flow.clock() + TRUST_PAUSE)
            if used
            else None
        )

    def _doubt_given(self, facts: SessionFacts, generation: int) -> None:
        """A message that a launch was begun with on a node which was lost since may have been read there: it is not given twice."""
        given = launch_record.given_before(self.home.session(facts.id), generation, facts.moves)
        if given and any(one.id == given and one.pending for one in facts.messages):
            text = (
                "its agent was being started with it when the node was lost, and may have read it; send it again if not"
            )
            raise Again(0.0, self._event(facts, e.MessageFailed(given, text), f"undelivered:{given}"))

    def _pause(self, later: Wait) -> float:
        return min(max(later.until - self.flow.clock(), 0.2), LONGEST_HOLD)

    async def _begin(
        self, facts: SessionFacts, generation: int, env: Mapping[str, str], first: bool
    ) -> launch_record.Begun:
        message = facts.next_message
        task = first and bool(facts.spec.prompt)
        whole = KNOWN.text(prompts.first_prompt(facts.spec))
        prompt = whole if task or message is None else message.text
        if facts.forgot and message is not None and facts.spec.prompt:
            prompt = f"{whole}\n\n{message.text}"  # it knows nothing of its task any more
        carries = message is not None and (prompt == message.text or (facts.forgot and prompt.endswith(message.text)))
        taken = message if carries else None
        await self.plugins.site_of(facts).write_files(facts.id, generation, prompt)
        fresh = facts.forgot or (first and facts.spec.conversation is None)
        plan = await self._plan(facts, prompt, env, fresh, taken)
        return launch_record.Begun(plan, prompt, taken.id if taken else None)

    def _notes(self, facts: SessionFacts) -> tuple[str, ...]:
        project, settings = self.plugins.project(facts.project), self.plugins.settings(facts)
        _, note = prompts.granted(project, settings, facts.spec.runtime, facts.spec.kind)
        return (note,) if note else ()

    async def _plan(
        self, facts: SessionFacts, prompt: str, env: Mapping[str, str], fresh: bool, taken: Message | None
    ) -> AgentLaunch:
        settings, site = self.plugins.settings(facts), self.plugins.site_of(facts)
        private = site.home.session(facts.id)
        project = self.plugins.project(facts.project)
        commands = (*prompts.commands(project), *self.plugins.own_commands(facts))
        permissions, _ = prompts.granted(project, settings, facts.spec.runtime, facts.spec.kind)
        context = AgentContext(
            session=facts.id,
            project=facts.project,
            workspace=Path(facts.spec.path),
            branch=facts.branch,
            base=facts.base,
            prompt=prompt,
            task_file=private / "task.md",
            private=private,
            repo=Path(facts.spec.repo),
            task=KNOWN.text(prompts.task_of(facts.spec))
            if prompt == KNOWN.text(prompts.first_prompt(facts.spec))
            else prompt,
            system=KNOWN.text(prompts.system_of(facts, project)),
            commands=commands,
            allowed=tuple(Permission(*rule) for rule in self.flow.home.allowed.get(facts.project, ())),
            model=facts.spec.model or settings.model,
            permissions=permissions,
            mode=settings.mode,
            resume=None if fresh else facts.conversation or facts.spec.conversation or "",
            message="" if fresh else taken.text if taken else prompt if facts.launch is None else "",
            env=env,
            mcp=self._mcp(facts, settings),
            edits=prompts.may_edit(project, facts.spec.kind),
        )
        agent = self.plugins.agent_of(facts)
        if settings.mode == "headless" and isinstance(agent, Headless):
            confined = sandbox.applies(project, facts.spec.runtime)
            scratch = sandbox.turns(private) if confined else None
            message = taken.id if taken else None
            return await site.headless(context, settings.tool, settings.options, project.plugins, message, scratch)
        return await agent.launch(context)

    def _mcp(self, facts: SessionFacts, settings: AgentSettings) -> str:
        """Where its agent finds our MCP server; nowhere, if it is to have none. A coordinating one cannot do without."""
        wanted, url = settings.mcp or facts.spec.kind == COORDINATOR, self.plugins.site_of(facts).url
        if facts.spec.runtime == containers.RUNTIME and self.plugins.project(facts.project).docker.network == "none":
            return ""
        return f"{url.rstrip('/')}/mcp" if wanted and url else ""

    async def _start(self, facts: SessionFacts, generation: int, plan: AgentLaunch, env: Mapping[str, str]) -> Handle:
        runtime, old, home = self.plugins.runtime_of(facts), handle_of(facts), self.plugins.site_of(facts).home
        if old is not None:
            await runtime.discard(old)
        spec = LaunchSpec(
            session=facts.id,
            generation=generation,
            argv=plan.argv,
            cwd=Path(facts.spec.path),
            env={**env, **plan.env},
            private=home.session(facts.id),
            log=home.terminal_log(facts.id),
            stdin=plan.stdin,
            container=self._container(facts, {**env, **plan.env}),
        )
        project, agent = self.plugins.project(facts.project), self.plugins.agent_of(facts)
        if not sandbox.applies(project, facts.spec.runtime):
            return await runtime.launch(spec)
        own = self.plugins.settings(facts).env
        spec = await sandbox.confined(self.host, self.home, facts, agent, own, spec)
        return sandbox.seen(await runtime.launch(spec))

    # -- messages ------------------------------------------------------------------------------------------------------

    async def deliver(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Write the next message to the terminal, once. Looks at the agent's state right before."""
        facts = self._facts(intent)
        message = next((one for one in facts.messages if one.id == intent.args["message"]), None)
        if message is None or not message.pending:
            return []
        current = facts.live and facts.generation == intent.generation
        if current and not self._reachable(intent):
            raise Again(UNREACHABLE_PAUSE, *self._held(facts, message, f"node {facts.node} is unreachable"))
        if current:
            await self.catch_up(facts.id)
            facts = self._facts(intent)
            await self._hold_if_needed(facts, message)
        handle = handle_of(facts)
        if handle is None or handle.generation != intent.generation or (facts.remote and not facts.live):
            outcome: Delivery = Undeliverable("its terminal is gone", ambiguous=True)
        else:
            await self._append_to_inbox(facts, message)
            outcome = await self._hand_over(facts, handle, message, interrupt=current and not attempts)
        return self._delivery(facts, message, intent, outcome)

    async def _hand_over(self, facts: SessionFacts, handle: Handle, message: Message, *, interrupt: bool) -> Delivery:
        """By the agent's own protocol, by its inbox, or typed into its terminal."""
        agent, runtime, interrupt = (
            self.plugins.agent_of(facts),
            self.plugins.runtime_of(facts),
            interrupt and message.interrupt,
        )
        if isinstance(agent, Delivers) and facts.live and not (facts.launch and facts.launch.inbox):
            outcome = await agent.deliver(self.run_of(facts), message.id, message.text, interrupt=interrupt)
            if isinstance(outcome, Typable):
                interrupt = False
                if outcome.first:
                    await runtime.press(handle, outcome.first)
            elif outcome is not None:
                return outcome
        by_inbox = facts.launch is not None and facts.launch.inbox
        if interrupt:
            await runtime.press(handle, ("C-c",) if by_inbox else agent.interrupt_keys)
            await self._until_interrupted(facts.id)
        if by_inbox:
            return Delivered()
        text = agent.typed(message.text) if isinstance(agent, Types) else message.text
        written = await runtime.deliver(handle, message.id, text)
        if isinstance(agent, Submits) and isinstance(written, Delivered):
            task = asyncio.get_running_loop().create_task(self._submit(facts.id, handle, message, agent))
            self._submitting.add(task)
            task.add_done_callback(self._submitting.discard)
        return written

    async def _submit(self, session: str, handle: Handle, message: Message, agent: Submits) -> None:
        """Press Enter again while a typed message stands in the agent's input line."""
        for number in range(SUBMIT_TRIES):
            await asyncio.sleep(SUBMIT_AFTER)
            facts = self.flow.sessions[session]
            known = next((one for one in facts.messages if one.id == message.id), None)
            over = known is None or known.state not in ("queued", "held", "delivered")
            if over or not facts.live or facts.generation != handle.generation or facts.activity.state == "blocked":
                return
            runtime = self.plugins.runtime_of(facts)
            try:
                if agent.unsent(await runtime.screen(handle), message.text):
                    await runtime.press(handle, ("Enter",), once=f"{message.id}-{number}")
            except AoError:
                return

    async def _until_interrupted(self, session: str) -> None:
        """What is typed while a turn is being stopped may be lost, or be joined to what the agent puts back into its prompt."""
        for _ in range(int(INTERRUPTED_WITHIN / 0.05)):
            if self.flow.sessions[session].activity.state not in IN_TURN:
                return
            await asyncio.sleep(0.05)

    def run_of(self, facts: SessionFacts) -> AgentRun:
        """A session's live launch, for its agent plugin."""
        return agent_run(facts, self.plugins, self.watch)

    def _delivery(self, facts: SessionFacts, message: Message, intent: Intent, outcome: Delivery) -> Sequence[Event]:
        generation = intent.generation
        match outcome:
            case Delivered():
                return [self._event(facts, e.MessageDelivered(message.id), f"delivered:{message.id}", generation)]
            case Held(reason):
                raise Again(1.0, *self._held(facts, message, reason))
            case Undeliverable(reason, ambiguous=True):
                text = f"{reason}, and it cannot be told whether the message was written before; send it again if it was not"
                return [self._event(facts, e.MessageFailed(message.id, text), f"undelivered:{message.id}")]
        return []  # certainly not written: it stays queued, and the agent's end is told by whoever watches it

    async def _hold_if_needed(self, facts: SessionFacts, message: Message) -> None:
        if facts.activity.state == "blocked":
            raise Again(60.0, *self._held(facts, message, "the agent waits for a permission"))
        if not message.task and (later := self.may_go(facts)):
            raise Again(self._pause(later), *self._held(facts, message, f"waits for {later.reason}"))
        waits = message.task or facts.spec.prompt or facts.spec.kind == COORDINATOR
        if facts.activity.state == "starting" and waits:
            await self._until_ready(facts, message)
        await self._until_it_listens(facts, message)

    async def _until_it_listens(self, facts: SessionFacts, message: Message) -> None:
        """What is typed before an agent has said its first word, or into a dialog it has just shown, would be taken for an answer."""
        assert facts.launch is not None
        if facts.launch.inbox:
            return
        unheard = facts.activity.source == "process" and facts.activity.state in IN_TURN
        if unheard and self._age(facts) < FIRST_WORD_WITHIN:
            raise Again(0.2, *self._held(facts, message, "the agent is not ready yet"))
        blocked = self.plugins.agent_of(facts).screen.blocked
        if blocked is not None and facts.activity.state in IN_TURN:
            shown = await self.plugins.runtime_of(facts).screen(Handle(**facts.launch.handle))
            if blocked.search(shown):
                raise Again(0.5, *self._held(facts, message, "the agent waits for a permission"))

    async def _until_ready(self, facts: SessionFacts, message: Message) -> None:
        """An agent that has not spoken yet may swallow what is typed: wait for its prompt, or for it to fall quiet."""
        assert facts.launch is not None
        log, waited = self.home.terminal_log(facts.id), self._age(facts)
        agent = self.plugins.agent_of(facts)
        rules, patience = agent.screen, KNOWN_READY_WITHIN if isinstance(agent, Listens) else READY_WITHIN
        if rules.ready is not None and waited < patience:
            if not rules.ready.search(await self.plugins.runtime_of(facts).screen(Handle(**facts.launch.handle))):
                raise Again(0.2, *self._held(facts, message, "the agent is not ready yet"))
        elif rules.ready is None and waited < READY_WITHIN / 4:
            status = log.stat()
            if not status.st_size or self.flow.clock() - status.st_mtime < QUIET_ENOUGH:
                raise Again(0.1)

    def _age(self, facts: SessionFacts) -> float:
        """Seconds that an agent has had since its start, or since ours: a clock that was put forward gives it none."""
        return self._steady() - self._launched.get(facts.id, self._began)

    def _held(self, facts: SessionFacts, message: Message, reason: str) -> list[Event]:
        if message.state == "held" and message.reason == reason:
            return []
        return [self._event(facts, e.MessageHeld(message.id, reason), f"held:{message.id}:{self.flow.clock():.3f}")]

    async def _append_to_inbox(self, facts: SessionFacts, message: Message) -> None:
        """For programs that want to acknowledge; a message is there once, however often delivery is tried."""
        site = self.plugins.site_of(facts)
        line = json.dumps({"message": message.id, "text": message.text}, ensure_ascii=False)
        await site.append_line(site.home.session(facts.id) / "inbox.jsonl", line)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def stop(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """End the agent and everything it started."""
        facts = self._facts(intent)
        handle = handle_of(facts)
        assert handle is not None
        gone = await self.plugins.runtime_of(facts).stop(handle)
        body = e.AgentStopped(gone.exit.code, gone.exit.signal)
        return [self._event(facts, body, ended_key(facts.id, handle.generation), handle.generation)]

    async def leave(self, facts: SessionFacts) -> Rescue:
        """Save everything that is in a session's workspace and remove it, for the session goes on on another node."""
        site, spec, handle = self.plugins.site_of(facts), self.workspace_spec(facts), handle_of(facts)
        if handle is not None:
            await self.plugins.runtime_of(facts).discard(handle)
        if facts.place is None or not facts.place.present or not await site.present(spec.path):
            return await site.saved_before(spec)
        report = await site.rescue(spec)
        if reasons := await site.is_safe(spec):
            raise Conflict(
                f"{spec.path} on {site.node} cannot be left: {'; '.join(reasons)}",
                f"look at it: ao sh {facts.id}; then stop it: ao stop {facts.id}",
            )
        await self.plugins.workspace_of(facts).remove(spec)
        return report

    async def clean_up(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Save what is unsaved, then remove the workspace if nothing in it can be lost and nobody uses it."""
        facts = self._facts(intent)
        nowhere = facts.remote and facts.node is None
        handle = None if nowhere else handle_of(facts)
        events = [] if nowhere else await self._end_strays(facts, handle)
        saved: list[str] = []
        kept = False
        there = facts.place is not None and facts.place.present
        if not there and not nowhere:
            # A daemon that was killed while it made the workspace, or that could not fill it, did not come to record it.
            wanted = self.workspace_spec(facts)
            found = await self.plugins.workspace_of(facts).abandon(wanted)
            events += [self._event(facts, _created(found, wanted), f"{intent.key}:found")] if found else []
            there = found is not None
        if there:
            site, spec, why = self.plugins.site_of(facts), self.workspace_spec(facts), ""
            if await site.present(spec.path):
                await self._unless_in_use(site, spec.path, attempts, keep=facts.keep)
                report = await site.rescue(spec)
                kept, why = await self._remove(facts, spec)
            else:  # its removal was cut short, or somebody else removed it
                report = await site.saved_before(spec)
                left = () if facts.remote else await left_behind(self.host, spec.repo, spec.path)
                kept, why = bool(left), _not_there(left)
                if not kept:
                    await self.plugins.workspace_of(facts).remove(spec)
                    saved.append(f"the workspace was gone already: {spec.path}")
            if report.ref:
                rescued = e.WorkRescued(report.ref, report.commit or "", tuple(report.saved))
                events.append(self._event(facts, rescued, f"{intent.key}:rescued"))
                saved.append(f"{', '.join(report.saved)}: {report.ref}")
            if kept:
                saved.append(f"the workspace stays ({why}): {spec.path}")
            else:
                sandbox.forget(facts, self.home.session(facts.id))
        if facts.place is not None:
            saved.insert(0, await self._where_commits_are(facts))
        if handle is not None:
            await self.plugins.runtime_of(facts).discard(handle)
        launch_checks.remove_surely(launch_checks.forget_ended(self.home.session(facts.id)))
        if self.after_landing is not None and (told := await self.after_landing(facts)):
            saved.append(told)
        if facts.pr and facts.pr.landing:
            saved.append(f"its change is still to land on {facts.pr.base}; not so: ao merge {facts.id} --cancel")
        events.append(self._event(facts, e.SessionStopped(tuple(saved), kept), f"{intent.key}:done"))
        return events

    async def _where_commits_are(self, facts: SessionFacts) -> str:
        if await Git(self.host, Path(facts.spec.repo)).resolve(f"refs/heads/{facts.branch}"):
            return f"commits: branch {facts.branch} in {facts.spec.repo}"
        return f"commits: up to {(facts.head or '')[:8]}; branch {facts.branch} is gone from {facts.spec.repo}"

    async def _end_strays(self, facts: SessionFacts, known: Handle | None) -> list[Event]:
        """A launch that was killed before it was recorded left an agent that nobody knows: record it, and end it."""
        runtime = self.plugins.runtime_of(facts)
        events = []
        for stray in await runtime.leftovers([known] if known else []):
            if stray.session != facts.id:
                continue
            gone = await runtime.stop(stray)
            await runtime.discard(stray)
            key, generation = ended_key(facts.id, stray.generation), stray.generation
            events.append(self._event(facts, e.AgentLaunched(asdict(stray)), f"stray:{key}", generation))
            events.append(self._event(facts, e.AgentStopped(gone.exit.code, gone.exit.signal), key, generation))
        return events

    async def _unless_in_use(self, site: Site, path: Path, attempts: int, *, keep: bool) -> None:
        users = [] if keep else await site.users_of(path)
        if users and attempts < 2:
            pid, name = users[0]
            raise Temporary(f"{path} is in use by {name} (pid {pid})", "end it, or stop with --keep")

    async def _remove(self, facts: SessionFacts, spec: WorkspaceSpec) -> tuple[bool, str]:
        """Remove the workspace if that is safe; otherwise say why it stays."""
        if facts.keep:
            return True, "as asked"
        site = self.plugins.site_of(facts)
        if users := await site.users_of(spec.path):
            pid, name = users[0]
            return True, f"{name}, pid {pid}, uses it"
        reasons = await site.is_safe(spec)
        if reasons:
            return True, "; ".join(reasons)
        await self.plugins.workspace_of(facts).remove(spec)
        return False, ""

    # -- time ----------------------------------------------------------------------------------------------------------

    async def silence(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """In a turn, and nothing heard for long: tell it once, then look again."""
        facts, now = self._facts(intent), self.flow.clock()
        threshold = stuck_after(self.flow.rules(facts.project, facts.spec.profile))
        if facts.activity.state not in IN_TURN:
            raise Again(threshold)
        heard = max(facts.activity.at, facts.heard_at)
        try:
            printed = self.home.terminal_log(facts.id).stat().st_mtime
        except OSError:
            printed = heard
        if printed > heard + 1.0:
            sign = replace(
                self._event(facts, e.AgentOutput(), f"output:{facts.id}:{printed:.3f}", facts.generation), time=printed
            )
            raise Again(max(1.0, printed + threshold - now), sign)
        if now < heard + threshold:
            raise Again(heard + threshold - now)
        due = self._event(
            facts, e.TimerDue("silence"), f"silent:{facts.id}:{facts.generation}:{heard:.3f}", facts.generation
        )
        raise Again(threshold, due)


def _not_there(left: Sequence[str]) -> str:
    """Why a workspace whose folder is gone is not forgotten."""
    return f"Git still has {', '.join(left)} of it: bring its folder back, or let Git forget it by git worktree prune"


def _created(made: WorkspaceInfo, spec: WorkspaceSpec) -> e.WorkspaceCreated:
    return e.WorkspaceCreated(
        path=str(made.path),
        branch=made.branch,
        base=made.base,
        base_commit=made.base_commit,
        head=made.head,
        git_dir=str(made.git_dir),
        notes=made.notes,
        git_env=dict(made.git_env),
        shared=made.shared,
        copied=spec.copy,
    )


async def _nothing(_session: str) -> None:
    """There is nothing to be heard."""


async def _nowhere(_facts: SessionFacts) -> bool:
    """There are no nodes."""
    return True
