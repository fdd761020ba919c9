"""`SessionSpecs`: what a session's workspace, environment and container should be, from its facts and the configuration in force."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent_orchestrator.base.api_tokens import Tokens
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.protocols import Container, WorkspaceSpec
from agent_orchestrator.sessions.isolation import docker_container
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS, agent_environment, session_variables
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.sessions.site import Site


class SessionSpecs:
    """Computes the specifications of a session's workspace and launch on each call; nothing is cached."""

    def __init__(self, core: Core, tokens: Tokens) -> None:
        self.core = core
        self.tokens = tokens

    def workspace(self, facts: SessionFacts, site: Site | None = None) -> WorkspaceSpec:
        """Return what a session's workspace should be on its site, or was on another `site`."""
        site = site or self.core.sites.for_session(facts)
        project, spec = self.core.settings.project(facts.project), facts.spec
        copied_files = facts.workspace.copied_patterns if facts.workspace and facts.workspace.present else ()
        return WorkspaceSpec(
            session=facts.id,
            repo=Path(spec.repo),
            path=Path(spec.path),
            link=Path(spec.link) if spec.link else None,
            private=site.home.session(facts.id),
            branch=facts.branch,
            base=facts.base,
            existing=spec.existing or facts.workspace is not None,
            last=(facts.head or "") if facts.workspace else "",
            copy=tuple(dict.fromkeys((*project.copy, *copied_files))),
            symlinks=project.symlinks,
            sparse=project.sparse,
            post_create=project.post_create,
            env=self.environment(facts, site=site, agent=False),
        )

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
        settings, site = self.core.settings.agent(facts), site or self.core.sites.for_session(facts)
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
        git_env = dict(facts.workspace.git_env) if facts.workspace else {}
        variables["AO_HOME"] = str(site.home.path)  # the agent's `ao` uses this daemon instead of starting another
        secrets, login = AGENT_SECRETS.get(settings.tool, ()) if agent else (), site.login
        if contained:
            login = docker_container.container_login_environment(login, secrets, private)
        return agent_environment(login, settings.env, {**git_env, **variables}, secrets)

    def container(self, facts: SessionFacts, env: Mapping[str, str] | None = None) -> Container | None:
        """Return the container in which the session's agent runs, or None if its runtime is not Docker."""
        if facts.spec.runtime != docker_container.DOCKER_RUNTIME:
            return None
        project, settings = self.core.settings.project(facts.project), self.core.settings.agent(facts)
        site, repo = self.core.sites.for_session(facts), Path(facts.spec.repo)
        return docker_container.container_of(project, settings, repo, site.home.session(facts.id), env or {}, site.url)
