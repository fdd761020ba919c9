"""The plugins that come with this package: slot → name → where the class is. Importing this module loads none of them."""

from __future__ import annotations

from collections.abc import Mapping

BUILTIN_PLUGINS: Mapping[str, Mapping[str, str]] = {
    "runtime": {
        "tmux": "agent_orchestrator.plugins.runtimes.tmux:TmuxRuntime",
        "process": "agent_orchestrator.plugins.runtimes.process:ProcessRuntime",
        "docker": "agent_orchestrator.plugins.runtimes.docker.runtime:DockerRuntime",
    },
    "agent": {
        "aider": "agent_orchestrator.plugins.agents.aider.plugin:Aider",
        "claude-code": "agent_orchestrator.plugins.agents.claude_code.plugin:ClaudeCode",
        "demo": "agent_orchestrator.plugins.agents.demo:Demo",
        "goose": "agent_orchestrator.plugins.agents.goose.plugin:Goose",
        "command": "agent_orchestrator.plugins.agents.command:CommandAgent",
        "codex": "agent_orchestrator.plugins.agents.codex.plugin:Codex",
        "gemini": "agent_orchestrator.plugins.agents.gemini:Gemini",
        "copilot": "agent_orchestrator.plugins.agents.copilot:Copilot",
        "cursor": "agent_orchestrator.plugins.agents.cursor:Cursor",
        "kimicode": "agent_orchestrator.plugins.agents.kimicode:KimiCode",
        "amp": "agent_orchestrator.plugins.agents.yaml_agents:amp",
        "auggie": "agent_orchestrator.plugins.agents.yaml_agents:auggie",
        "crush": "agent_orchestrator.plugins.agents.yaml_agents:crush",
        "droid": "agent_orchestrator.plugins.agents.yaml_agents:droid",
        "qwen": "agent_orchestrator.plugins.agents.yaml_agents:qwen",
        "opencode": "agent_orchestrator.plugins.agents.opencode.plugin:OpenCode",
    },
    "workspace": {
        "worktree": "agent_orchestrator.plugins.workspaces.worktree:WorktreeWorkspace",
        "clone": "agent_orchestrator.plugins.workspaces.clone:CloneWorkspace",
    },
    "tracker": {
        "local": "agent_orchestrator.plugins.forges.local.issues:LocalIssues",
        "github": "agent_orchestrator.plugins.forges.github.issues:GitHubIssues",
        "gitlab": "agent_orchestrator.plugins.forges.gitlab.issues:GitLabIssues",
        "linear": "agent_orchestrator.plugins.forges.linear.issues:LinearIssues",
        "jira": "agent_orchestrator.plugins.forges.jira.issues:JiraIssues",
    },
    "scm": {
        "local": "agent_orchestrator.plugins.forges.local.pull_requests:LocalForge",
        "github": "agent_orchestrator.plugins.forges.github.pull_requests:GitHub",
        "gitlab": "agent_orchestrator.plugins.forges.gitlab.merge_requests:GitLab",
    },
    "notifier": {
        "desktop": "agent_orchestrator.plugins.notifiers.desktop:Desktop",
        "slack": "agent_orchestrator.plugins.notifiers.slack:Slack",
        "discord": "agent_orchestrator.plugins.notifiers.discord:Discord",
        "webhook": "agent_orchestrator.plugins.notifiers.webhook:Webhook",
        "composio": "agent_orchestrator.plugins.notifiers.composio:Composio",
        "openclaw": "agent_orchestrator.plugins.notifiers.openclaw:OpenClaw",
        "apprise": "agent_orchestrator.plugins.notifiers.apprise:AppriseNotifier",
    },
    "terminal": {
        "web": "agent_orchestrator.plugins.terminals.web:Web",
        "tmux": "agent_orchestrator.plugins.terminals.tmux:TmuxWindow",
        "iterm2": "agent_orchestrator.plugins.terminals.iterm2:ITerm2",
        "windows-terminal": "agent_orchestrator.plugins.terminals.windows_terminal:WindowsTerminal",
        "kitty": "agent_orchestrator.plugins.terminals.kitty:Kitty",
        "wezterm": "agent_orchestrator.plugins.terminals.wezterm:WezTerm",
        "gnome-terminal": "agent_orchestrator.plugins.terminals.gnome_terminal:GnomeTerminal",
        "command": "agent_orchestrator.plugins.terminals.command:CommandTerminal",
    },
}
"""This package's entry points, repeated here: reading the installed metadata takes tens of milliseconds and needs an installed
package."""
