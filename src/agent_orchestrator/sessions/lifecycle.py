"""Effects of a session's life: make its workspace, launch its agent, deliver messages, stop, save and clean up.

Each effect takes an intent, acts through plugins that may be called again after a crash, and returns the events that record what happened.
Look here when a session does not start, receive messages or stop as it should.
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
"""Seconds without output after which an agent that does not report readiness counts as ready for its first prompt."""
FIRST_WORD_WITHIN = 3.0
"""Seconds that a started agent which already has its task gets for its first report before a message is typed."""
READY_WITHIN = 20.0
"""Seconds to wait for the prompt of a CLI whose plugin cannot listen to it."""
SUBMIT_AFTER, SUBMIT_TRIES = 2.0, 5
"""Seconds between checks that a typed message was submitted, and the number of checks."""
KNOWN_READY_WITHIN = 120.0
"""Seconds to wait for the prompt of a CLI whose plugin can listen to it: on a busy machine it may start slowly."""
INTERRUPTED_WITHIN = 3.0
"""Seconds to wait for an interrupted turn to end."""
LONGEST_HOLD = 60.0
"""Seconds after which it is checked again, at the latest, whether an agent may be started or sent a message."""
TRUST_PAUSE = 30.0
"""Seconds until it is checked again whether a configuration is trusted."""

UNREACHABLE_PAUSE = 0.5
"""Seconds until it is checked again whether a session's node can be reached."""

Carry = Callable[[Intent, int], Awaitable[Sequence[Event]]]
"""Carries out an intent; the number says how often that was tried before."""

Output = Callable[[str, str], None]
"""Receives a session's id and a line of its live output."""


class Lifecycle:
    """The effects that start, run and end sessions."""

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
        """Returns one more line for the report of a stopped session, or ""."""
        self.may_go: Callable[[SessionFacts], Wait | None] = lambda _facts: None
        """Returns why an agent may not be started or sent a message yet, or None."""
        self.distrust: Callable[[SessionFacts], str] = lambda _facts: ""
        """Returns which untrusted settings of the repository a session would use, or ""."""
        self.catch_up: Callable[[str], Awaitable[None]] = _skip_catch_up
        """Records what an agent has reported so far."""
        self.carry: Callable[[SessionFacts], Awaitable[bool]] = _keep_conversation
        """Copies the agent's conversation to the session's node; returns False if it is lost."""
        self._submit_tasks: set[asyncio.Task[None]] = set()
        self._monotonic, self._daemon_start = steady, steady()
        self._launched_at: dict[str, float] = {}
        """When this daemon started each session's agent, by a clock that does not jump."""

    def effects(self) -> dict[str, Effect]:
        """Return the effects, by kind of intent."""
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
        """Wrap an effect so that it is retried while the session's node is unreachable.

        The node either comes back, or is declared lost, which changes the session's facts.
        """

        async def run_when_reachable(intent: Intent, attempts: int) -> Sequence[Event]:
            """Run the effect; raise `Again` if the node is unreachable, before or afterwards."""
            try:
                if not self._is_reachable(intent):
                    raise Again(UNREACHABLE_PAUSE)
                return await run(intent, attempts)
            except Temporary:
                if not self._is_reachable(intent):
                    raise Again(UNREACHABLE_PAUSE) from None
                raise

        return run_when_reachable

    def _is_reachable(self, intent: Intent) -> bool:
        """Return whether the intent's session is on this machine or on a node that can be reached."""
        facts = self._facts(intent)
        return facts.node is None or self.plugins.site_of(facts).reachable

    def _facts(self, intent: Intent) -> SessionFacts:
        """Return the facts of the intent's session."""
        return self.flow.sessions[intent.session]

    def _new_event(
        self, facts: SessionFacts, body: e.Body, key: str, generation: int = 0, source: str = "daemon"
    ) -> Event:
        """Return an event of a session, with the current time."""
        return Event(body, self.flow.clock(), source, key, facts.project, facts.id, generation)

    # -- workspace -----------------------------------------------------------------------------------------------------

    def workspace_spec(self, facts: SessionFacts, site: Site | None = None) -> WorkspaceSpec:
        """Return what a session's workspace should be on its site, or was on another `site`."""
        site = site or self.plugins.site_of(facts)
        project, spec = self.plugins.project(facts.project), facts.spec
        copied_files = facts.place.copied if facts.place and facts.place.present else ()
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
            copy=tuple(dict.fromkeys((*project.copy, *copied_files))),
            symlinks=project.symlinks,
            sparse=project.sparse,
            post_create=project.post_create,
            env=self.environment(facts, site=site, agent=False),
        )

    async def prepare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Make the workspace; on a restore, put the saved work back into it."""
        facts = self._facts(intent)
        if untrusted := self.distrust(facts):
            raise Denied(
                f"the configuration of {facts.project} is not trusted ({untrusted})", "read it, then trust it: ao trust"
            )
        await self.plugins.here.login_ready.wait()
        self.home.session(facts.id).mkdir(mode=0o700, parents=True, exist_ok=True)
        site, spec = self.plugins.site_of(facts), self.workspace_spec(facts)
        workspace = await self.plugins.workspace_of(facts).create(spec, lambda line: self.output(facts.id, line))
        if isinstance(runtime := self.plugins.runtime_of(facts), Furnishes) and (container := self._container(facts)):
            await runtime.furnish(container, lambda line: self.output(facts.id, line))
        notes = workspace.notes
        if facts.rescues or facts.moves:
            restored = await site.bring_back(spec)
            notes = (*notes, restored.waiting) if restored.waiting else notes
        has_lost_conversation = facts.remote and not await self.carry(facts)
        base = facts.place.base_commit if facts.place else workspace.base_commit
        body = replace(_workspace_created(workspace, spec), base_commit=base, notes=notes, forgot=has_lost_conversation)
        return [self._new_event(facts, body, f"{intent.key}:done")]

    async def publish(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Copy a workspace's commits into the main repository."""
        facts = self._facts(intent)
        head = facts.head or ""
        await self.plugins.workspace_of(facts).publish(self.workspace_spec(facts))
        return [self._new_event(facts, e.WorkPublished(head), f"{intent.key}:done")]

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
        """Return the whole environment of a session's agent, or of its shells.

        `contained` is for an agent in a container; `agent` adds the agent's login secrets, which other programs do not need.
        """
        settings, site = self.plugins.settings(facts), site or self.plugins.site_of(facts)
        private = site.home.session(facts.id)
        launch_generation = generation or max(1, facts.generation)
        variables = session_variables(
            session=facts.id,
            project=facts.project,
            workspace=Path(facts.spec.path),
            branch=facts.branch,
            base=facts.base,
            task_file=private / "task.md",
            spool=site.home.spool(facts.id, launch_generation),
            inbox=private / "inbox.jsonl",
            url=site.url,
            token=self.tokens.for_session(facts.id, launch_generation),
            ports=facts.spec.ports,
        )
        git_env = dict(facts.place.git_env) if facts.place else {}
        variables["AO_HOME"] = str(site.home.path)  # the agent's `ao` uses this daemon instead of starting another
        secrets, login = AGENT_SECRETS.get(settings.tool, ()) if agent else (), site.login
        if contained:
            login = containers.login_inside(login, secrets, private)
        return agent_environment(login, settings.env, {**git_env, **variables}, secrets)

    def _container(self, facts: SessionFacts, env: Mapping[str, str] | None = None) -> Container | None:
        """Return the container in which the session's agent runs, or None if its runtime is not Docker."""
        if facts.spec.runtime != containers.RUNTIME:
            return None
        project, settings = self.plugins.project(facts.project), self.plugins.settings(facts)
        site, repo = self.plugins.site_of(facts), Path(facts.spec.repo)
        return containers.container_of(project, settings, repo, site.home.session(facts.id), env or {}, site.url)

    async def launch(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Start the agent with its task, or later with the message it is started for, or to continue where it stopped."""
        facts, generation = self._facts(intent), intent.generation
        assert facts.place is not None
        self.plugins.in_force(facts.project)  # raises if the sandbox settings cannot be loaded
        if not await self.plugins.site_of(facts).present(Path(facts.place.path)):
            raise Conflict(
                f"the workspace {facts.place.path} is not there any more",
                f"make it anew: ao stop {facts.id}, then ao restore {facts.id}",
            )
        await self.plugins.here.login_ready.wait()
        facts = self._facts(intent)
        if (postponed := self._postpone_start(facts, intent)) is not None:
            return [postponed]
        is_first, private = facts.launch is None, self.home.session(facts.id)
        if is_contained := facts.spec.runtime == containers.RUNTIME:
            containers.tidy_home(private)
        env = self.environment(facts, generation, contained=is_contained)
        begun_launch = launch_record.kept(private, generation, facts.run, facts.moves)
        if begun_launch is None:
            self._doubt_given(facts, generation)
            begun_launch = await self._begin_launch(facts, generation, env, is_first)
            launch_record.keep(private, generation, facts.run, begun_launch, facts.moves)
        plan, prompt = begun_launch.plan, begun_launch.prompt
        prompt_message = next(
            (message for message in facts.messages if message.id == begun_launch.message and message.pending), None
        )
        if prompt_message and plan.paste is None:
            await self._append_to_inbox(facts, prompt_message)  # must be there before the program reads its inbox
        handle = await self._start_process(facts, generation, plan, env)
        self._launched_at[facts.id] = self._monotonic()
        launched = e.AgentLaunched(
            asdict(handle),
            resumed=not is_first,
            conversation=plan.conversation,
            env_notes=self._permission_notes(facts),
            inbox=plan.inbox,
            memo=dict(plan.memo),
        )
        events = [self._new_event(facts, launched, f"{intent.key}:done", generation)]
        if plan.paste is None:
            if prompt and not plan.waits and not isinstance(self.plugins.agent_of(facts), Listens):
                active = e.AgentActivity("active")
                events.append(self._new_event(facts, active, f"{intent.key}:active", generation, "process"))
            if prompt_message:
                events.append(
                    self._new_event(
                        facts, e.MessageDelivered(prompt_message.id), f"delivered:{prompt_message.id}", generation
                    )
                )
        elif plan.paste and not prompt_message:
            queued = e.MessageQueued(f"task-{facts.id}-{generation}", plan.paste, "daemon", task=True)
            events.append(self._new_event(facts, queued, f"{intent.key}:prompt", generation))
        return events

    def _postpone_start(self, facts: SessionFacts, intent: Intent) -> Event | None:
        """Postpone a start that is not allowed yet; return None if it may go on.

        A session's first start returns an event that gives up its slot. An agent that ended and would be started for a message raises
        `Again` and the message is held.
        """
        begun_launch = launch_record.kept(self.home.session(facts.id), intent.generation, facts.run, facts.moves)
        wait = None if begun_launch else self._wait_for_trust(facts) or self.may_go(facts)
        if wait is None:
            return None
        if facts.launched_run != facts.run:
            return self._new_event(facts, e.StartPutOff(wait.reason), f"{intent.key}:put-off")
        message = facts.next_message
        raise Again(
            self._pause(wait), *(self._held_events(facts, message, f"waits for {wait.reason}") if message else ())
        )

    def _wait_for_trust(self, facts: SessionFacts) -> Wait | None:
        """Return a wait for the person's trust if the session would use untrusted settings, or None."""
        untrusted = self.distrust(facts)
        return (
            Wait(f"your trust in its configuration ({untrusted}): ao trust", self.flow.clock() + TRUST_PAUSE)
            if untrusted
            else None
        )

    def _doubt_given(self, facts: SessionFacts, generation: int) -> None:
        """Fail a message that a launch on a lost node had begun with: the agent may have read it, so it is not delivered twice."""
        message_id = launch_record.given_before(self.home.session(facts.id), generation, facts.moves)
        if message_id and any(message.id == message_id and message.pending for message in facts.messages):
            text = (
                "its agent was being started with it when the node was lost, and may have read it; send it again if not"
            )
            raise Again(0.0, self._new_event(facts, e.MessageFailed(message_id, text), f"undelivered:{message_id}"))

    def _pause(self, wait: Wait) -> float:
        """Return the seconds until a wait should be checked again."""
        return min(max(wait.until - self.flow.clock(), 0.2), LONGEST_HOLD)

    async def _begin_launch(
        self, facts: SessionFacts, generation: int, env: Mapping[str, str], is_first: bool
    ) -> launch_record.Begun:
        """Choose the prompt and plan of a launch, and write its files to the session's site."""
        message = facts.next_message
        starts_task = is_first and bool(facts.spec.prompt)
        task_prompt = KNOWN.text(prompts.first_prompt(facts.spec))
        prompt = task_prompt if starts_task or message is None else message.text
        if facts.forgot and message is not None and facts.spec.prompt:
            prompt = f"{task_prompt}\n\n{message.text}"  # its conversation was lost, so it needs the task again
        is_in_prompt = message is not None and (
            prompt == message.text or (facts.forgot and prompt.endswith(message.text))
        )
        prompt_message = message if is_in_prompt else None
        await self.plugins.site_of(facts).write_files(facts.id, generation, prompt)
        is_new_conversation = facts.forgot or (is_first and facts.spec.conversation is None)
        plan = await self._plan_launch(facts, prompt, env, is_new_conversation, prompt_message)
        return launch_record.Begun(plan, prompt, prompt_message.id if prompt_message else None)

    def _permission_notes(self, facts: SessionFacts) -> tuple[str, ...]:
        """Return a note about permissions that differ from the configured ones, if there is one."""
        project, settings = self.plugins.project(facts.project), self.plugins.settings(facts)
        _, note = prompts.granted(project, settings, facts.spec.runtime, facts.spec.kind)
        return (note,) if note else ()

    async def _plan_launch(
        self,
        facts: SessionFacts,
        prompt: str,
        env: Mapping[str, str],
        is_new_conversation: bool,
        prompt_message: Message | None,
    ) -> AgentLaunch:
        """Return the agent plugin's plan of a launch; `is_new_conversation` starts a new conversation."""
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
            resume=None if is_new_conversation else facts.conversation or facts.spec.conversation or "",
            message=""
            if is_new_conversation
            else prompt_message.text
            if prompt_message
            else prompt
            if facts.launch is None
            else "",
            env=env,
            mcp=self._mcp_url(facts, settings),
            edits=prompts.may_edit(project, facts.spec.kind),
        )
        agent = self.plugins.agent_of(facts)
        if settings.mode == "headless" and isinstance(agent, Headless):
            is_sandboxed = sandbox.applies(project, facts.spec.runtime)
            scratch = sandbox.turns(private) if is_sandboxed else None
            message_id = prompt_message.id if prompt_message else None
            return await site.headless(context, settings.tool, settings.options, project.plugins, message_id, scratch)
        return await agent.launch(context)

    def _mcp_url(self, facts: SessionFacts, settings: AgentSettings) -> str:
        """Return the URL of our MCP server for the session's agent, or "" if it gets none; a coordinator always gets one."""
        needs_mcp, url = settings.mcp or facts.spec.kind == COORDINATOR, self.plugins.site_of(facts).url
        if facts.spec.runtime == containers.RUNTIME and self.plugins.project(facts.project).docker.network == "none":
            return ""
        return f"{url.rstrip('/')}/mcp" if needs_mcp and url else ""

    async def _start_process(
        self, facts: SessionFacts, generation: int, plan: AgentLaunch, env: Mapping[str, str]
    ) -> Handle:
        """Start the agent's process by its runtime, in a sandbox if the project has one."""
        runtime, old_handle, home = self.plugins.runtime_of(facts), handle_of(facts), self.plugins.site_of(facts).home
        if old_handle is not None:
            await runtime.discard(old_handle)
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
        own_env = self.plugins.settings(facts).env
        spec = await sandbox.confined(self.host, self.home, facts, agent, own_env, spec)
        return sandbox.seen(await runtime.launch(spec))

    # -- messages ------------------------------------------------------------------------------------------------------

    async def deliver(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Deliver the next message once, after checking the agent's state."""
        facts = self._facts(intent)
        message = next((candidate for candidate in facts.messages if candidate.id == intent.args["message"]), None)
        if message is None or not message.pending:
            return []
        is_current = facts.live and facts.generation == intent.generation
        if is_current and not self._is_reachable(intent):
            raise Again(UNREACHABLE_PAUSE, *self._held_events(facts, message, f"node {facts.node} is unreachable"))
        if is_current:
            await self.catch_up(facts.id)
            facts = self._facts(intent)
            await self._hold_if_needed(facts, message)
        handle = handle_of(facts)
        if handle is None or handle.generation != intent.generation or (facts.remote and not facts.live):
            outcome: Delivery = Undeliverable("its terminal is gone", ambiguous=True)
        else:
            await self._append_to_inbox(facts, message)
            outcome = await self._hand_to_agent(facts, handle, message, interrupt=is_current and not attempts)
        return self._events_of_delivery(facts, message, intent, outcome)

    async def _hand_to_agent(
        self, facts: SessionFacts, handle: Handle, message: Message, *, interrupt: bool
    ) -> Delivery:
        """Deliver a message by the agent's own protocol, through its inbox, or by typing it into its terminal."""
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
        uses_inbox = facts.launch is not None and facts.launch.inbox
        if interrupt:
            await runtime.press(handle, ("C-c",) if uses_inbox else agent.interrupt_keys)
            await self._wait_until_interrupted(facts.id)
        if uses_inbox:
            return Delivered()
        text = agent.typed(message.text) if isinstance(agent, Types) else message.text
        delivery = await runtime.deliver(handle, message.id, text)
        if isinstance(agent, Submits) and isinstance(delivery, Delivered):
            task = asyncio.get_running_loop().create_task(
                self._press_enter_until_sent(facts.id, handle, message, agent)
            )
            self._submit_tasks.add(task)
            task.add_done_callback(self._submit_tasks.discard)
        return delivery

    async def _press_enter_until_sent(self, session: str, handle: Handle, message: Message, agent: Submits) -> None:
        """Press Enter again while a typed message is still in the agent's input line."""
        for attempt in range(SUBMIT_TRIES):
            await asyncio.sleep(SUBMIT_AFTER)
            facts = self.flow.sessions[session]
            current_message = next((candidate for candidate in facts.messages if candidate.id == message.id), None)
            is_settled = current_message is None or current_message.state not in ("queued", "held", "delivered")
            if (
                is_settled
                or not facts.live
                or facts.generation != handle.generation
                or facts.activity.state == "blocked"
            ):
                return
            runtime = self.plugins.runtime_of(facts)
            try:
                if agent.unsent(await runtime.screen(handle), message.text):
                    await runtime.press(handle, ("Enter",), once=f"{message.id}-{attempt}")
            except AoError:
                return

    async def _wait_until_interrupted(self, session: str) -> None:
        """Wait until the turn has ended.

        Text typed while a turn is being stopped may be lost, or be joined to what the agent puts back into its prompt.
        """
        for _ in range(int(INTERRUPTED_WITHIN / 0.05)):
            if self.flow.sessions[session].activity.state not in IN_TURN:
                return
            await asyncio.sleep(0.05)

    def run_of(self, facts: SessionFacts) -> AgentRun:
        """Return a session's live launch, for its agent plugin."""
        return agent_run(facts, self.plugins, self.watch)

    def _events_of_delivery(
        self, facts: SessionFacts, message: Message, intent: Intent, outcome: Delivery
    ) -> Sequence[Event]:
        """Return the events that record a delivery's outcome; raise `Again` if the message is held."""
        generation = intent.generation
        match outcome:
            case Delivered():
                return [self._new_event(facts, e.MessageDelivered(message.id), f"delivered:{message.id}", generation)]
            case Held(reason):
                raise Again(1.0, *self._held_events(facts, message, reason))
            case Undeliverable(reason, ambiguous=True):
                text = f"{reason}, and it cannot be told whether the message was written before; send it again if it was not"
                return [self._new_event(facts, e.MessageFailed(message.id, text), f"undelivered:{message.id}")]
        return []  # not written: it stays queued; the observer records the agent's end

    async def _hold_if_needed(self, facts: SessionFacts, message: Message) -> None:
        """Raise `Again` if the message must wait for a permission, a usage limit, or the agent to become ready."""
        if facts.activity.state == "blocked":
            raise Again(60.0, *self._held_events(facts, message, "the agent waits for a permission"))
        if not message.task and (wait := self.may_go(facts)):
            raise Again(self._pause(wait), *self._held_events(facts, message, f"waits for {wait.reason}"))
        expects_prompt = message.task or facts.spec.prompt or facts.spec.kind == COORDINATOR
        if facts.activity.state == "starting" and expects_prompt:
            await self._hold_until_ready(facts, message)
        await self._hold_until_listening(facts, message)

    async def _hold_until_listening(self, facts: SessionFacts, message: Message) -> None:
        """Raise `Again` if typed text could be taken for an answer: before the agent's first report, or while a dialog is shown."""
        assert facts.launch is not None
        if facts.launch.inbox:
            return
        has_not_reported = facts.activity.source == "process" and facts.activity.state in IN_TURN
        if has_not_reported and self._seconds_since_start(facts) < FIRST_WORD_WITHIN:
            raise Again(0.2, *self._held_events(facts, message, "the agent is not ready yet"))
        blocked = self.plugins.agent_of(facts).screen.blocked
        if blocked is not None and facts.activity.state in IN_TURN:
            shown = await self.plugins.runtime_of(facts).screen(Handle(**facts.launch.handle))
            if blocked.search(shown):
                raise Again(0.5, *self._held_events(facts, message, "the agent waits for a permission"))

    async def _hold_until_ready(self, facts: SessionFacts, message: Message) -> None:
        """Raise `Again` until a starting agent shows its prompt or is quiet, because it may drop text that is typed earlier."""
        assert facts.launch is not None
        log, waited_seconds = self.home.terminal_log(facts.id), self._seconds_since_start(facts)
        agent = self.plugins.agent_of(facts)
        rules, max_wait = agent.screen, KNOWN_READY_WITHIN if isinstance(agent, Listens) else READY_WITHIN
        if rules.ready is not None and waited_seconds < max_wait:
            if not rules.ready.search(await self.plugins.runtime_of(facts).screen(Handle(**facts.launch.handle))):
                raise Again(0.2, *self._held_events(facts, message, "the agent is not ready yet"))
        elif rules.ready is None and waited_seconds < READY_WITHIN / 4:
            status = log.stat()
            if not status.st_size or self.flow.clock() - status.st_mtime < QUIET_ENOUGH:
                raise Again(0.1)

    def _seconds_since_start(self, facts: SessionFacts) -> float:
        """Return the seconds since the agent's start, or since the daemon's if it was started earlier; changes of the clock do
        not matter.
        """
        return self._monotonic() - self._launched_at.get(facts.id, self._daemon_start)

    def _held_events(self, facts: SessionFacts, message: Message, reason: str) -> list[Event]:
        """Return the event that a message is held for this reason, or none if that is recorded already."""
        if message.state == "held" and message.reason == reason:
            return []
        return [self._new_event(facts, e.MessageHeld(message.id, reason), f"held:{message.id}:{self.flow.clock():.3f}")]

    async def _append_to_inbox(self, facts: SessionFacts, message: Message) -> None:
        """Append a message to the inbox file of programs that acknowledge; it is written once, however often delivery is tried."""
        site = self.plugins.site_of(facts)
        line = json.dumps({"message": message.id, "text": message.text}, ensure_ascii=False)
        await site.append_line(site.home.session(facts.id) / "inbox.jsonl", line)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def stop(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Stop the agent and everything it started."""
        facts = self._facts(intent)
        handle = handle_of(facts)
        assert handle is not None
        end = await self.plugins.runtime_of(facts).stop(handle)
        body = e.AgentStopped(end.exit.code, end.exit.signal)
        return [self._new_event(facts, body, ended_key(facts.id, handle.generation), handle.generation)]

    async def leave(self, facts: SessionFacts) -> Rescue:
        """Save everything in a session's workspace and remove it, because the session continues on another node."""
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
        """Save unsaved work, then remove the workspace if nothing in it can be lost and no process uses it."""
        facts = self._facts(intent)
        has_no_node = facts.remote and facts.node is None
        handle = None if has_no_node else handle_of(facts)
        events = [] if has_no_node else await self._stop_stray_launches(facts, handle)
        saved: list[str] = []
        kept = False
        is_present = facts.place is not None and facts.place.present
        if not is_present and not has_no_node:
            # A daemon that was killed while making the workspace, or failed to fill it, has not recorded it.
            missing_spec = self.workspace_spec(facts)
            abandoned = await self.plugins.workspace_of(facts).abandon(missing_spec)
            events += (
                [self._new_event(facts, _workspace_created(abandoned, missing_spec), f"{intent.key}:found")]
                if abandoned
                else []
            )
            is_present = abandoned is not None
        if is_present:
            site, spec, why = self.plugins.site_of(facts), self.workspace_spec(facts), ""
            if await site.present(spec.path):
                await self._refuse_if_in_use(site, spec.path, attempts, keep=facts.keep)
                report = await site.rescue(spec)
                kept, why = await self._remove(facts, spec)
            else:  # its removal was interrupted, or another program removed it
                report = await site.saved_before(spec)
                remaining = () if facts.remote else await left_behind(self.host, spec.repo, spec.path)
                kept, why = bool(remaining), _missing_folder_reason(remaining)
                if not kept:
                    await self.plugins.workspace_of(facts).remove(spec)
                    saved.append(f"the workspace was gone already: {spec.path}")
            if report.ref:
                rescued = e.WorkRescued(report.ref, report.commit or "", tuple(report.saved))
                events.append(self._new_event(facts, rescued, f"{intent.key}:rescued"))
                saved.append(f"{', '.join(report.saved)}: {report.ref}")
            if kept:
                saved.append(f"the workspace stays ({why}): {spec.path}")
            else:
                sandbox.forget(facts, self.home.session(facts.id))
        if facts.place is not None:
            saved.insert(0, await self._describe_commits(facts))
        if handle is not None:
            await self.plugins.runtime_of(facts).discard(handle)
        launch_checks.remove_surely(launch_checks.forget_ended(self.home.session(facts.id)))
        if self.after_landing is not None and (note := await self.after_landing(facts)):
            saved.append(note)
        if facts.pr and facts.pr.landing:
            saved.append(f"its change is still to land on {facts.pr.base}; not so: ao merge {facts.id} --cancel")
        events.append(self._new_event(facts, e.SessionStopped(tuple(saved), kept), f"{intent.key}:done"))
        return events

    async def _describe_commits(self, facts: SessionFacts) -> str:
        """Describe where the session's commits are."""
        if await Git(self.host, Path(facts.spec.repo)).resolve(f"refs/heads/{facts.branch}"):
            return f"commits: branch {facts.branch} in {facts.spec.repo}"
        return f"commits: up to {(facts.head or '')[:8]}; branch {facts.branch} is gone from {facts.spec.repo}"

    async def _stop_stray_launches(self, facts: SessionFacts, current_handle: Handle | None) -> list[Event]:
        """Record and stop agents of launches that were killed before they were recorded."""
        runtime = self.plugins.runtime_of(facts)
        events = []
        for stray in await runtime.leftovers([current_handle] if current_handle else []):
            if stray.session != facts.id:
                continue
            end = await runtime.stop(stray)
            await runtime.discard(stray)
            key, generation = ended_key(facts.id, stray.generation), stray.generation
            events.append(self._new_event(facts, e.AgentLaunched(asdict(stray)), f"stray:{key}", generation))
            events.append(self._new_event(facts, e.AgentStopped(end.exit.code, end.exit.signal), key, generation))
        return events

    async def _refuse_if_in_use(self, site: Site, path: Path, attempts: int, *, keep: bool) -> None:
        """Raise `Temporary` on the first two attempts while a process uses the folder."""
        users = [] if keep else await site.users_of(path)
        if users and attempts < 2:
            pid, name = users[0]
            raise Temporary(f"{path} is in use by {name} (pid {pid})", "end it, or stop with --keep")

    async def _remove(self, facts: SessionFacts, spec: WorkspaceSpec) -> tuple[bool, str]:
        """Remove the workspace if that is safe; return whether it was kept, and why."""
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
        """Record once that an agent in a turn has reported nothing for too long, then check again later."""
        facts, now = self._facts(intent), self.flow.clock()
        threshold = stuck_after(self.flow.rules(facts.project, facts.spec.profile))
        if facts.activity.state not in IN_TURN:
            raise Again(threshold)
        last_report_at = max(facts.activity.at, facts.heard_at)
        try:
            last_output_at = self.home.terminal_log(facts.id).stat().st_mtime
        except OSError:
            last_output_at = last_report_at
        if last_output_at > last_report_at + 1.0:
            output_event = replace(
                self._new_event(facts, e.AgentOutput(), f"output:{facts.id}:{last_output_at:.3f}", facts.generation),
                time=last_output_at,
            )
            raise Again(max(1.0, last_output_at + threshold - now), output_event)
        if now < last_report_at + threshold:
            raise Again(last_report_at + threshold - now)
        silence_event = self._new_event(
            facts, e.TimerDue("silence"), f"silent:{facts.id}:{facts.generation}:{last_report_at:.3f}", facts.generation
        )
        raise Again(threshold, silence_event)


def _missing_folder_reason(entries: Sequence[str]) -> str:
    """Return why a workspace is kept although its folder is missing."""
    return (
        f"Git still has {', '.join(entries)} of it: bring its folder back, or let Git forget it by git worktree prune"
    )


def _workspace_created(workspace: WorkspaceInfo, spec: WorkspaceSpec) -> e.WorkspaceCreated:
    """Return the event that records a new workspace."""
    return e.WorkspaceCreated(
        path=str(workspace.path),
        branch=workspace.branch,
        base=workspace.base,
        base_commit=workspace.base_commit,
        head=workspace.head,
        git_dir=str(workspace.git_dir),
        notes=workspace.notes,
        git_env=dict(workspace.git_env),
        shared=workspace.shared,
        copied=spec.copy,
    )


async def _skip_catch_up(_session: str) -> None:
    """Do nothing: there are no reports to read."""


async def _keep_conversation(_facts: SessionFacts) -> bool:
    """Return True: without nodes, the conversation is already in place."""
    return True
