"""The environment and configuration that OpenCode is started with: system prompt, model, permissions and our MCP server."""

from __future__ import annotations

import json
import re
from typing import Any

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.protocols import (
    AgentContext,
)

MCP_SERVER_NAME = "ao"
"""The name of our MCP server in OpenCode; its tools are `ao_…`."""

_READ_ONLY_TOOLS = ("glob", "grep", "list", "lsp", "question", "skill", "task", "todoread", "todowrite")
_HEADLESS_SHELL_RULES = {
    "git status": "allow",
    "git add *": "allow",
    "git commit -m *": "allow",
    "git commit -am *": "allow",
}
"""Shell rules for headless `auto-edit`, where no person can be asked: without them nothing could be committed."""
_RISKY_ARGUMENTS = {
    **{
        f"git {word} *{mark}*": "ask"
        for word in ("add", "commit")
        for mark in ("--path", ">", "<", "`", "$", "\\", ";", "|")
    },
    **{f"git add *{mark}*": "ask" for mark in ('"', "'", "--")},
}
"""Arguments that make one of these commands do more than stage or commit; such a command needs permission."""
_READ_RULES = {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}


def environment(context: AgentContext, model: str | None) -> dict[str, str]:
    """Return the environment variables that set the system prompt, the model and the permissions; the user's own configuration
    stays as it is.
    """
    content: dict[str, Any] = {}
    if user_content := context.env.get("OPENCODE_CONFIG_CONTENT"):
        try:
            content = dict(json.loads(user_content))
        except (ValueError, TypeError):
            raise UsageError("OPENCODE_CONFIG_CONTENT is not a JSON object", "correct it, or unset it") from None
    if context.system:
        rules = context.private / "opencode-rules.md"
        rules.write_text(context.system, encoding="utf-8")
        content["instructions"] = [*content.get("instructions", ()), str(rules)]
    if model:
        content["model"] = model
    if context.mcp:
        content["mcp"] = {**content.get("mcp", {}), MCP_SERVER_NAME: _mcp_server(context)}
    env = {
        "OPENCODE_PERMISSION": json.dumps(_permissions(context)),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "PWD": str(context.workspace),  # OpenCode works in this folder, not in the one it is started in
    }
    return {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(content)} if content else env


def _mcp_server(context: AgentContext) -> dict[str, Any]:
    """Return the entry for our MCP server; OpenCode inserts the token from the environment."""
    if context.mcp.startswith("https:"):
        variables = {name: f"{{env:{name}}}" for name in agent_cli.MCP_BRIDGE_VARIABLES}
        return {
            "type": "local",
            "command": list(agent_cli.MCP_BRIDGE_COMMAND),
            "environment": variables,
            "enabled": True,
        }
    headers = {"Authorization": "Bearer {env:AO_TOKEN}"}
    return {"type": "remote", "url": context.mcp, "headers": headers, "oauth": False, "enabled": True}


def _permissions(context: AgentContext) -> dict[str, Any]:
    """Return permission rules in OpenCode's order, where the last match holds.

    They are merged behind the user's rules, and a key that the user has as well keeps the user's position; so each key is
    spelled as a pattern that no user writes.
    """
    if context.permissions == "full" and context.edits:
        return {"**": "allow"}
    rules: dict[str, dict[str, str]] = {
        "read": dict(_READ_RULES),
        **{tool: {"*": "allow"} for tool in _READ_ONLY_TOOLS},
        "edit": {"*": {"plan": "deny", "auto-edit": "allow"}.get(context.permissions, "ask")},
        "bash": {
            "*": "ask",
            **(
                {**_HEADLESS_SHELL_RULES, **_RISKY_ARGUMENTS}
                if context.mode == "headless" and context.permissions == "auto-edit"
                else {}
            ),
            **{command: "allow" for command in agent_cli.own_commands(context) if not re.search(r"[*?]", command)},
        },
    }
    for permission in context.allowed:
        if not re.search(r"[*?]", permission.command):
            for pattern in (permission.command,) if permission.tool == "bash" else permission.command.split(", "):
                rules.setdefault(permission.tool, {"*": "ask"})[pattern or "*"] = "allow"
    if context.permissions == "plan" or not context.edits:
        rules["edit"] = {"*": "deny"}
    mcp_rules = {f"{MCP_SERVER_NAME}_*": "allow"} if context.mcp else {}
    return {"**": "ask", **{f"{tool[:-1]}?": rule for tool, rule in rules.items()}, **mcp_rules}
