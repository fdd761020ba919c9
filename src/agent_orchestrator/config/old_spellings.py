"""Convert every accepted spelling of a configuration to the one form that `model.py` knows.

Works on the tree of a file. What it does not recognize stays, so that the model refuses it with line and key. Keys that other
versions accepted and that have no meaning here are dropped, each with one warning.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from agent_orchestrator.config.key_operations import KeyConverter, single_key_section, to_kebab_case, unused_name
from agent_orchestrator.config.model import Config, Profile, Project, keys_of
from agent_orchestrator.config.problems import ConfigNotes
from agent_orchestrator.config.yaml_tree import Items, Section, sections

_IGNORED_KEYS = {
    "": ("lifecycle", "readyThresholdMs", "terminalPort", "directTerminalPort", "dashboard", "configVersion"),
    "project": ("opencodeIssueSessionStrategy", "decomposer"),
    "agentConfig": ("opencodeSessionId",),
}
_TRIGGERS_BY_HANDLER = {
    "ci-failure": "ci-failed",
    "review-comments": "changes-requested",
    "merge-conflict": "merge-conflicts",
    "bugbot-comments": "review-comment",
}
_RENAMED_REACTION_KEYS = {
    "prompt": "message",
    "maxRetries": "retries",
    "autoRespond": "auto",
    "requireApprovalAfter": "approvalAfter",
    "when": "condition",
    "mergeStrategy": "strategy",
}
_CHECK_KEYS = frozenset({"command", "timeout", "parallel", "on"})
_PROFILE_KEYS = keys_of(Profile)
_FLAT_KEYS = (keys_of(Project) - keys_of(Config)) | {
    *("worker", "orchestratorRules", "orchestratorSessionStrategy"),
    *_IGNORED_KEYS["project"],
}
_CONVERSATION_BY_STRATEGY = {"reuse": "continue"} | dict.fromkeys(
    ("delete", "ignore", "delete-new", "ignore-new", "kill-previous"), "new"
)
"""Accepted values of `orchestratorSessionStrategy` that mean one of `conversation`'s values."""


def normalize(tree: Section, notes: ConfigNotes) -> Section:
    """Convert a file's tree to the form of the model, in place, and return it."""
    _Normalizer(notes).convert_file(tree)
    return tree


class _Normalizer(KeyConverter):
    # -- the file ------------------------------------------------------------------------------------------------------

    """Converter of one file's tree to the form of the model."""

    def convert_file(self, tree: Section) -> None:
        """Convert the whole file."""
        if "$schema" in tree:
            tree.drop("$schema")
        self._rename_keys(tree)
        self._drop_meaningless(tree, _IGNORED_KEYS[""])
        self._nest_flat_keys(tree)
        self._agents(tree)
        self._plugin_files(tree)
        if isinstance(tree.get("defaults"), Section):
            self._defaults(tree)
        if isinstance(tree.get("orchestrator"), Section):
            self._orchestrator(tree)
        for key in ("projects", "project"):
            if key == "project" and isinstance(tree.get(key), Section):
                self._project(tree[key])
            elif isinstance(tree.get(key), Section):
                self._fill_empty_sections(tree[key])
                for _, project in sections(tree[key]):
                    self._project(project)
        self._reactions(tree)
        self._notifiers(tree)
        for key in ("cluster", "power", "tls", "notificationRouting", "notifications", "quietHours"):
            self._rename_nested_keys(tree, key)
        if isinstance(tree.get("cluster"), Section):
            self._rename_nested_keys(tree["cluster"], "resources")

    def _nest_flat_keys(self, tree: Section) -> None:
        """Move keys of a project from the top of a file without projects to `project`: they are about the repository it lies in."""
        project_keys = [key for key in tree if key in _FLAT_KEYS]
        if not project_keys or "projects" in tree or "project" in tree:
            return
        target = Section(tree.lines[project_keys[0]])
        for key in project_keys:
            tree.move(key, target, key)
        tree.put("project", target, target.line)

    def _agents(self, tree: Section) -> None:
        """Convert `agents: - id: …` with `config:` to a map of profiles."""
        agents = tree.get("agents")
        if isinstance(agents, Items):
            tree["agents"] = agents = self._map_by_name(agents, ("id", "name"), "agents")
        if isinstance(agents, Section):
            self._fill_empty_sections(agents)
        for _, profile in sections(agents):
            self._profile(profile)

    def _profile(self, profile: Section) -> None:
        """Convert a profile: its `config`, its command as a list, and its tool if it only has a command or a script."""
        self._rename_keys(profile)
        config = profile.get("config")
        if isinstance(config, Section):
            profile.drop("config")
            self._rename_keys(config)
            for key in list(config):
                target = profile if key in _PROFILE_KEYS else profile.section("options", config.lines[key])
                self._move_key(config, key, target, key)
        if "agent" in profile and "tool" not in profile:
            profile.move("agent", profile, "tool")
        if "agentRules" in profile:
            self._move_key(profile, "agentRules", profile, "rules")
        for key in ("command", "resume"):
            self._split_command(profile, key)
        if "tool" not in profile:
            for key, tool in (("command", "command"), ("script", "demo")):
                if key in profile:
                    profile.put("tool", tool, profile.lines[key])
                    break
        self._rename_nested_keys(profile, "filters")
        self._rename_nested_keys(profile, "budget")
        self._rename_nested_keys(profile, "screen")
        self._env(profile)
        self._rename_permissions(profile)
        self._reactions(profile)

    def _plugin_files(self, tree: Section) -> None:
        """Convert `plugins:` to a list of files. A package that Python cannot load is dropped with a warning."""
        plugins = tree.get("plugins")
        if not isinstance(plugins, Items):
            return
        remaining = Items()
        for item, line in zip(plugins, plugins.lines, strict=True):
            entry = item
            if isinstance(item, str):
                entry = Section(line)
                entry.put("path", item, line)
            if isinstance(entry, Section):
                self._rename_keys(entry)
                if entry.get("enabled") is False:
                    continue
                if "path" not in entry and "package" in entry:
                    self._warn_unused_key(
                        line, "plugins", "package", "install it with pip: installed plugins are found by themselves"
                    )
                    continue
                for key in ("enabled", "source", "package", "version"):
                    if key in entry:
                        entry.drop(key)
            remaining.add(entry, line)
        tree["plugins"] = remaining

    # -- defaults, orchestrator, projects ------------------------------------------------------------------------------

    def _defaults(self, tree: Section) -> None:
        """Convert the defaults: settings of workers, of the coordinator, and of plugins."""
        defaults: Section = tree["defaults"]
        self._rename_keys(defaults)
        worker, coordinator = defaults.get("worker"), defaults.get("orchestrator")
        if isinstance(worker, Section):
            defaults.drop("worker")
            self._worker(worker, defaults)
        if isinstance(coordinator, Section):
            defaults.drop("orchestrator")
            target = tree.section("orchestrator", coordinator.line).section("coordinator", coordinator.line)
            self._coordinator(coordinator, target)
        self._agent_config(defaults, lambda: tree.section("orchestrator").section("coordinator"))
        self._plugin(defaults, "tracker")
        self._plugin(defaults, "scm")
        self._plugin(defaults, "terminal")

    def _orchestrator(self, tree: Section) -> None:
        """Move what configures workers to the defaults, and reaction handlers to the reactions."""
        part: Section = tree["orchestrator"]
        self._rename_keys(part)
        for key in ("runtime", "agent", "workspace"):
            if key in part:
                self._move_key(part, key, tree.section("defaults", part.lines[key]), key, quiet=True)
        for alias in ("maxConcurrent", "maxConcurrentAgents", "maxParallel"):
            if alias in part:
                self._move_key(part, alias, part, "maxParallelAgents")
        handlers = part.get("reactionHandlers")
        if isinstance(handlers, Section):
            line = part.lines["reactionHandlers"]
            part.drop("reactionHandlers")
            self._handlers(handlers, tree, line)
        if isinstance(part.get("coordinator"), Section):
            coordinator = part["coordinator"]
            self._coordinator(coordinator, coordinator)
        self._rename_nested_keys(part, "budget")

    def _handlers(self, handlers: Section, tree: Section, line: int) -> None:
        """Move `reactionHandlers` to the reactions, under the names of triggers."""
        if "reactions" not in tree or isinstance(tree["reactions"], Items):
            self._reactions(tree)
        reactions = tree.section("reactions", line)
        for key in list(handlers):
            name = _TRIGGERS_BY_HANDLER.get(to_kebab_case(key), to_kebab_case(key))
            value = handlers[key]
            if isinstance(value, Section) and isinstance(reactions.get(name), Section):
                self._reaction(value)
                for field in list(value):
                    value.move(field, reactions[name], field)
                handlers.drop(key)
            else:
                handlers.move(key, reactions, name)

    def _project(self, project: Section) -> None:
        """Convert a project's section."""
        self._rename_keys(project)
        self._drop_meaningless(project, _IGNORED_KEYS["project"])
        worker, coordinator = project.get("worker"), project.get("orchestrator")
        if isinstance(worker, Section):
            project.drop("worker")
            self._worker(worker, project)
        if isinstance(project.get("coordinator"), Section):
            self._coordinator(project["coordinator"], project["coordinator"])
        if isinstance(coordinator, Section):
            project.drop("orchestrator")
            self._coordinator(coordinator, project.section("coordinator", coordinator.line))
        if "orchestratorRules" in project:
            line = project.lines["orchestratorRules"]
            self._move_key(project, "orchestratorRules", project.section("coordinator", line), "rules")
        if "orchestratorSessionStrategy" in project:
            line = project.lines["orchestratorSessionStrategy"]
            strategy = project["orchestratorSessionStrategy"]
            project["orchestratorSessionStrategy"] = _CONVERSATION_BY_STRATEGY.get(str(strategy), strategy)
            self._move_key(project, "orchestratorSessionStrategy", project.section("coordinator", line), "conversation")
        self._agent_config(project, lambda: project.section("coordinator"))
        self._plugin(project, "tracker")
        self._plugin(project, "scm")
        self._plugin(project, "terminal")
        self._ci(project)
        for key in ("ports", "budget", "docker", "review", "notificationRouting"):
            self._rename_nested_keys(project, key)
        self._env(project)
        self._reactions(project)

    def _worker(self, worker: Section, target: Section) -> None:
        """Move a worker's own agent and settings over those for both roles."""
        self._rename_keys(worker)
        if "agent" in worker:
            if "agent" in target:
                target.drop("agent")
            worker.move("agent", target, "agent")
        inner = worker.get("agentConfig")
        if isinstance(inner, Section):
            self._rename_keys(inner)
            config = target.section("agentConfig", inner.line)
            for key in list(inner):
                if key in config:
                    config.drop(key)
                inner.move(key, config, key)
            worker.drop("agentConfig")
        for key in list(worker):
            worker.move(key, target, f"worker.{key}")

    def _coordinator(self, source: Section, target: Section) -> None:
        """Move a coordinator's settings, with those of its `agentConfig`, to `target`."""
        self._rename_keys(source)
        inner = source.get("agentConfig")
        if isinstance(inner, Section):
            source.drop("agentConfig")
            self._rename_keys(inner)
            self._drop_meaningless(inner, _IGNORED_KEYS["agentConfig"])
            if "orchestratorModel" in inner:
                inner.move("orchestratorModel", inner, "model")
            for key in list(inner):
                self._move_key(inner, key, source, key)
        self._rename_permissions(source)
        if source is not target:
            for key in list(source):
                self._move_key(source, key, target, key)

    def _agent_config(self, owner: Section, coordinator: Any) -> None:
        """Convert an `agentConfig`. The coordinator's model moves to the section that `coordinator()` returns."""
        config = owner.get("agentConfig")
        if not isinstance(config, Section):
            return
        self._rename_keys(config)
        self._drop_meaningless(config, _IGNORED_KEYS["agentConfig"])
        if "orchestratorModel" in config:
            self._move_key(config, "orchestratorModel", coordinator(), "model", quiet=True)
        self._rename_permissions(config)

    def _ci(self, project: Section) -> None:
        """Convert one command, one check or a map of checks to a map of checks."""
        ci = project.get("ci")
        line = project.lines.get("ci", project.line)
        if isinstance(ci, str):
            project["ci"] = single_key_section("default", single_key_section("command", ci, line), line)
        elif isinstance(ci, Section):
            if set(ci) & _CHECK_KEYS and not any(isinstance(value, Section) for value in ci.values()):
                self._rename_keys(ci)
                project["ci"] = single_key_section("default", ci, line)
                return
            for name in list(ci):
                if isinstance(ci[name], str):
                    ci[name] = single_key_section("command", ci[name], ci.lines[name])
                elif isinstance(ci[name], Section):
                    self._rename_keys(ci[name])

    # -- reactions -----------------------------------------------------------------------------------------------------

    def _reactions(self, owner: Section) -> None:
        """Convert a list of rules, or a map by trigger whose values may be lists, to a map of rules by name."""
        reactions = owner.get("reactions")
        if isinstance(reactions, Items):
            reactions = self._rules_from_list(reactions)
        elif isinstance(reactions, Section):
            reactions = self._rules_from_map(reactions)
        else:
            return
        owner["reactions"] = reactions
        for _, rule in sections(reactions):
            self._reaction(rule)

    def _rules_from_list(self, items: Items) -> Section:
        """Return a map of rules by name, from a list of rules."""
        rules = Section(items.lines[0] if items.lines else 1)
        for item, line in zip(items, items.lines, strict=True):
            if not isinstance(item, Section):
                self._notes.add_problem(line, "reactions", "each reaction is a mapping", "write - trigger: ci-failed")
                continue
            trigger = item.get("trigger")
            name = item.drop("name") if "name" in item else trigger
            if not isinstance(name, str) or not isinstance(trigger or name, str):
                self._notes.add_problem(line, "reactions", "the reaction has no trigger", "write - trigger: ci-failed")
                continue
            if isinstance(trigger, str):
                item["trigger"] = _trigger(trigger)
            rules.put(unused_name(_trigger(name), rules), item, line)
        return rules

    def _rules_from_map(self, reactions: Section) -> Section:
        """Return a map of rules by name, from a map by trigger."""
        rules = Section(reactions.line)
        for key in list(reactions):
            line, value = reactions.lines[key], reactions[key]
            name = _trigger(key)
            if isinstance(value, Items):
                for item, item_line in zip(value, value.lines, strict=True):
                    if isinstance(item, Section) and "trigger" not in item:
                        item.put("trigger", name, item_line)
                    rules.put(unused_name(name, rules), item, item_line, key)
            elif name in rules:
                self._notes.add_problem(line, f"reactions.{key}", f'given twice, first as "{rules.spelled[name]}"')
            else:
                rules.put(name, Section(line) if value is None else value, line, key)
        return rules

    def _reaction(self, rule: Section) -> None:
        """Convert one rule: its keys, its action and trigger, and its command as text."""
        self._rename_keys(rule, keep_empty=True)
        for alias, key in _RENAMED_REACTION_KEYS.items():
            if alias in rule:
                self._move_key(rule, alias, rule, key)
        if rule.get("action") == "auto-merge":
            rule["action"] = "merge"
        for key in ("action", "trigger"):
            if isinstance(rule.get(key), str):
                rule[key] = rule[key].replace("_", "-") if key == "action" else _trigger(rule[key])
        if isinstance(rule.get("command"), Items):
            rule["command"] = shlex.join(str(part) for part in rule["command"])

    # -- notifiers and other plugins -----------------------------------------------------------------------------------

    def _notifiers(self, tree: Section) -> None:
        """Convert the notifiers. One text is the name of a plugin, a webhook's URL, or a URL for apprise."""
        notifiers = tree.get("notifiers")
        if not isinstance(notifiers, Section):
            return
        for name in list(notifiers):
            line, value = notifiers.lines[name], notifiers[name]
            if value is None:
                notifiers[name] = value = Section(line)
            if isinstance(value, str):
                is_plugin_name = re.fullmatch(r"[a-z][a-z0-9-]*", value)
                is_other_service = "://" in value and not value.startswith(("http://", "https://"))
                notifiers[name] = section = single_key_section(
                    "plugin" if is_plugin_name else "url" if is_other_service else "webhookUrl", value, line
                )
                if is_other_service:
                    section.put("plugin", "apprise", line)
                value = section
            if isinstance(value, Section):
                self._notifier(name, value, tree)

    def _notifier(self, name: str, notifier: Section, tree: Section) -> None:
        """Convert one notifier: its plugin, its URL, and the plugin file that it names."""
        self._rename_keys(notifier)
        if "plugin" not in notifier:
            notifier.put("plugin", name, notifier.line)
        aliases = ["webhook", *(["url"] if notifier["plugin"] in ("slack", "discord", "webhook") else [])]
        for alias in aliases:
            if isinstance(notifier.get(alias), str):
                self._move_key(notifier, alias, notifier, "webhookUrl")
        if isinstance(notifier.get("path"), str):
            line = notifier.lines["path"]
            path = notifier.drop("path")
            if path.endswith(".py"):
                plugins = tree.get("plugins")
                if not isinstance(plugins, Items):
                    plugins = Items()
                    tree.put("plugins", plugins, line)
                plugins.add(single_key_section("path", path, line), line)
            else:
                self._warn_unused_key(line, f"notifiers.{name}", "path", "a plugin is a Python file")
        if "package" in notifier:
            line = notifier.lines["package"]
            notifier.drop("package")
            self._warn_unused_key(
                line, f"notifiers.{name}", "package", "install it with pip: installed plugins are found by themselves"
            )

    def _plugin(self, owner: Section, key: str) -> None:
        """Convert a plugin's section. One text is the name of the plugin."""
        value = owner.get(key)
        if isinstance(value, str):
            owner[key] = single_key_section("plugin", value, owner.lines[key])
        elif isinstance(value, Section):
            self._rename_keys(value)
            if "type" in value:
                self._move_key(value, "type", value, "plugin")
            if isinstance(value.get("webhook"), Section):
                self._rename_keys(value["webhook"])


def _trigger(name: str) -> str:
    """Return a trigger's name as it is spelled here."""
    spelling = name.replace("_", "-") if re.fullmatch(r"[a-z0-9_-]+", name) else name
    return _TRIGGERS_BY_HANDLER.get(spelling, spelling)
