"""`Launches`: the effect that starts a session's agent, with its task or with the message that it is started for.

Look here when an agent does not start, starts with the wrong prompt or permissions, or waits although it might start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.config.effective import ResolvedAgent
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import COORDINATOR_KIND, Message, SessionFacts
from agent_orchestrator.core.fixes import fix_commands
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Conflict
from agent_orchestrator.protocols import AgentContext, AgentLaunch, Handle, LaunchSpec, Permission
from agent_orchestrator.sessions.agents import prompts
from agent_orchestrator.sessions.isolation import docker_container, sandbox
from agent_orchestrator.sessions.lifecycle import launch_record
from agent_orchestrator.sessions.lifecycle.pending_message import append_to_inbox, held_events
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.lifecycle.usage_wait import SessionWait, UsageGate, seconds_until_recheck
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.permissions.permission_mode import may_edit, permission_mode, project_commands
from agent_orchestrator.sessions.session_plugins import handle_of

TRUST_PAUSE = 30.0
"""Seconds until it is checked again whether a configuration is trusted."""


class Launches(Part):
    """Starts agents, each launch once, however often it is tried."""

    def __init__(self, core: Core, specs: SessionSpecs, usage: UsageGate) -> None:
        super().__init__(core)
        self.specs = specs
        self.usage = usage
        self._daemon_start = self.clock.monotonic()
        self._launched_at: dict[str, float] = {}
        """When this daemon started each session's agent, by a clock that does not jump."""

    async def launch(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Start the agent with its task, or later with the message it is started for, or to continue where it stopped."""
        facts, generation = self.flow.sessions[intent.session], intent.generation
        assert facts.workspace is not None
        self.core.settings.checked_project(facts.project)  # raises if the sandbox settings cannot be loaded
        if not await self.core.sites.for_session(facts).folder_exists(Path(facts.workspace.path)):
            raise Conflict(
                f"the workspace {facts.workspace.path} is not there any more",
                f"make it anew: ao stop {facts.id}, then ao restore {facts.id}",
            )
        await self.core.sites.local.login_ready.wait()
        facts = self.flow.sessions[intent.session]
        if (postponed := self._postpone_start(facts, intent)) is not None:
            return [postponed]
        is_first, private = facts.launch is None, self.home.session(facts.id)
        if is_contained := facts.spec.runtime == docker_container.DOCKER_RUNTIME:
            docker_container.remove_escaping_links(private)
        env = self.specs.environment(facts, generation, contained=is_contained)
        begun_launch = launch_record.load(private, generation, facts.run, facts.moves)
        if begun_launch is None:
            self._fail_uncertain_message(facts, generation)
            begun_launch = await self._begin_launch(facts, generation, env, is_first)
            launch_record.store(private, generation, facts.run, begun_launch, facts.moves)
        plan, prompt = begun_launch.plan, begun_launch.prompt
        prompt_message = next(
            (message for message in facts.messages if message.id == begun_launch.message and message.pending), None
        )
        if prompt_message and plan.paste is None:
            await append_to_inbox(self.core, facts, prompt_message)  # must be there before the program reads its inbox
        handle = await self._start_process(facts, generation, plan, env)
        self._launched_at[facts.id] = self.clock.monotonic()
        launched = e.AgentLaunched(
            asdict(handle),
            resumed=not is_first,
            conversation=plan.conversation,
            env_notes=self._permission_notes(facts),
            inbox=plan.inbox,
            memo=dict(plan.plugin_data),
        )
        events = [self.event(facts, launched, f"{intent.key}:done", generation)]
        if plan.paste is None:
            if prompt and not plan.waits and not self.core.plugins.agent_of(facts).listens:
                active = e.AgentActivity("active")
                events.append(self.event(facts, active, f"{intent.key}:active", generation, "process"))
            if prompt_message:
                events.append(
                    self.event(
                        facts, e.MessageDelivered(prompt_message.id), f"delivered:{prompt_message.id}", generation
                    )
                )
        elif plan.paste and not prompt_message:
            queued = e.MessageQueued(f"task-{facts.id}-{generation}", plan.paste, "daemon", task=True)
            events.append(self.event(facts, queued, f"{intent.key}:prompt", generation))
        return events

    def _postpone_start(self, facts: SessionFacts, intent: Intent) -> Event | None:
        """Postpone a start that is not allowed yet; return None if it may go on.

        A session's first start returns an event that gives up its slot. An agent that ended and would be started for a message raises
        `RetryLater` and the message is held.
        """
        begun_launch = launch_record.load(self.home.session(facts.id), intent.generation, facts.run, facts.moves)
        wait = None if begun_launch else self._wait_for_trust(facts) or self.usage.claim_turn_or_wait(facts)
        if wait is None:
            return None
        if facts.launched_run != facts.run:
            return self.event(facts, e.StartPutOff(wait.reason), f"{intent.key}:put-off")
        message = facts.next_message
        raise RetryLater(
            seconds_until_recheck(wait, self.clock),
            *(held_events(self, facts, message, f"waits for {wait.reason}") if message else ()),
        )

    def _wait_for_trust(self, facts: SessionFacts) -> SessionWait | None:
        """Return a wait for the person's trust if the session would use untrusted settings, or None."""
        untrusted = self.core.projects.untrusted_use(facts)
        return (
            SessionWait(f"your trust in its configuration ({untrusted}): ao trust", self.flow.clock() + TRUST_PAUSE)
            if untrusted
            else None
        )

    def _fail_uncertain_message(self, facts: SessionFacts, generation: int) -> None:
        """Fail a message that a launch on a lost node had begun with: the agent may have read it, so it is not delivered twice."""
        message_id = launch_record.message_of_lost_launch(self.home.session(facts.id), generation, facts.moves)
        if message_id and any(message.id == message_id and message.pending for message in facts.messages):
            text = (
                "its agent was being started with it when the node was lost, and may have read it; send it again if not"
            )
            raise RetryLater(0.0, self.event(facts, e.MessageFailed(message_id, text), f"undelivered:{message_id}"))

    async def _begin_launch(
        self, facts: SessionFacts, generation: int, env: Mapping[str, str], is_first: bool
    ) -> launch_record.LaunchRecord:
        """Choose the prompt and plan of a launch, and write its files to the session's site."""
        message = facts.next_message
        starts_task = is_first and bool(facts.spec.prompt)
        task_prompt = REDACTOR.redact_text(prompts.first_prompt(facts.spec))
        prompt = task_prompt if starts_task or message is None else message.text
        if facts.conversation_lost and message is not None and facts.spec.prompt:
            prompt = f"{task_prompt}\n\n{message.text}"  # its conversation was lost, so it needs the task again
        is_in_prompt = message is not None and (
            prompt == message.text or (facts.conversation_lost and prompt.endswith(message.text))
        )
        prompt_message = message if is_in_prompt else None
        await self.core.sites.for_session(facts).write_files(facts.id, generation, prompt)
        is_new_conversation = facts.conversation_lost or (is_first and facts.spec.conversation is None)
        plan = await self._plan_launch(facts, prompt, env, is_new_conversation, prompt_message)
        return launch_record.LaunchRecord(plan, prompt, prompt_message.id if prompt_message else None)

    def _permission_notes(self, facts: SessionFacts) -> tuple[str, ...]:
        """Return a note about permissions that differ from the configured ones, if there is one."""
        project, settings = self.core.settings.project(facts.project), self.core.settings.agent(facts)
        _, note = permission_mode(project, settings, facts.spec.runtime, facts.spec.kind)
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
        settings, site = self.core.settings.agent(facts), self.core.sites.for_session(facts)
        private = site.home.session(facts.id)
        project = self.core.settings.project(facts.project)
        commands = (*project_commands(project), *fix_commands(self.flow.home.fixes, facts.spec.group))
        permissions, _ = permission_mode(project, settings, facts.spec.runtime, facts.spec.kind)
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
            task=REDACTOR.redact_text(prompts.task_prompt(facts.spec))
            if prompt == REDACTOR.redact_text(prompts.first_prompt(facts.spec))
            else prompt,
            system=REDACTOR.redact_text(prompts.system_prompt_for_kind(facts, project)),
            commands=commands,
            allowed=tuple(Permission(*rule) for rule in self.flow.home.allowed_permissions.get(facts.project, ())),
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
            edits=may_edit(project, facts.spec.kind),
        )
        agent = self.core.plugins.agent_of(facts)
        if settings.mode == "headless" and agent.has_headless_mode:
            is_sandboxed = sandbox.is_sandboxed(project, facts.spec.runtime)
            scratch = sandbox.turns_folder(private) if is_sandboxed else None
            message_id = prompt_message.id if prompt_message else None
            return await site.plan_headless_launch(
                context, settings.tool, settings.options, project.plugins, message_id, scratch
            )
        return await agent.launch(context)

    def _mcp_url(self, facts: SessionFacts, settings: ResolvedAgent) -> str:
        """Return the URL of our MCP server for the session's agent, or "" if it gets none; a coordinator always gets one."""
        needs_mcp, url = settings.mcp or facts.spec.kind == COORDINATOR_KIND, self.core.sites.for_session(facts).url
        if (
            facts.spec.runtime == docker_container.DOCKER_RUNTIME
            and self.core.settings.project(facts.project).docker.network == "none"
        ):
            return ""
        return f"{url.rstrip('/')}/mcp" if needs_mcp and url else ""

    async def _start_process(
        self, facts: SessionFacts, generation: int, plan: AgentLaunch, env: Mapping[str, str]
    ) -> Handle:
        """Start the agent's process by its runtime, in a sandbox if the project has one."""
        runtime, old_handle, home = (
            self.core.plugins.runtime_of(facts),
            handle_of(facts),
            self.core.sites.for_session(facts).home,
        )
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
            container=self.specs.container(facts, {**env, **plan.env}),
        )
        project, agent = self.core.settings.project(facts.project), self.core.plugins.agent_of(facts)
        if not sandbox.is_sandboxed(project, facts.spec.runtime):
            return await runtime.launch(spec)
        own_env = self.core.settings.agent(facts).env
        spec = await sandbox.sandboxed_launch(self.host, self.home, facts, agent, own_env, spec)
        return sandbox.with_inner_pid(await runtime.launch(spec))

    def seconds_since_start(self, facts: SessionFacts) -> float:
        """Return the seconds since the agent's start, or since the daemon's if it was started earlier; changes of the clock do
        not matter.
        """
        return self.clock.monotonic() - self._launched_at.get(facts.id, self._daemon_start)
