"""Values that need trust: plugins of others, paths outside the folder, variables, terminals and notifiers."""

from __future__ import annotations

import re
from typing import Any

from agent_orchestrator.config import model as m
from agent_orchestrator.config.load import BUILT_IN_PLUGINS
from agent_orchestrator.config.trust.power import SelectUntrusted, TrustContext, drop_empty, resolve_path

_SAFE_VARIABLES = re.compile(r"(APP|FEATURE|TEST)_\w+|CI|DEBUG|FORCE_COLOR|LOG_LEVEL|NO_COLOR|PORT")
"""Names of variables that by convention only the repository's own programs read. Any other may matter: `PS0` runs in the shell."""

_STEERING = re.compile(
    r".*(CMD|CONTENT|PERMISSIONS?|ALLOW_ALL|HOOKS?|CONF|RC|INIT|ALIASES|_RSH|_SSH|LAUNCHER|WRAPPER|COMPILER|URLS|HEADERS|PLUGINS?|SANDBOX"
    r"|COMMAND|EDITOR|PAGER|ASKPASS|URL|URI|HOST|SERVER|ENDPOINT|BASE|PROXY|REGISTRY|CONFIG|HOME|DIR|PATH|FILE|CERTS?|CA|BUNDLE|KEY"
    r"|TOKEN|SECRET|PASSWORD|OPTIONS|OPTS|FLAGS|ARGS|PRELOAD)",
    re.IGNORECASE,
)
"""Endings that mark a name as dangerous: such variables decide which programs run, what they load, and which hosts they use."""


def third_party_plugin(slot: str) -> SelectUntrusted:
    """Return a power for a plugin that does not come with the product."""

    def find_power(value: Any, _section: Any, around: TrustContext) -> Any:
        name = value.plugin if isinstance(value, m.PluginSection) else value
        own = getattr(around.own.defaults, slot)
        allowed = [*BUILT_IN_PLUGINS.get(slot, ("auto",)), own.plugin if isinstance(own, m.PluginSection) else own]
        return None if name in allowed else name

    return find_power


def terminal_powers(value: Any, section: Any, around: TrustContext) -> Any:
    """Return a plugin that is not built in, and all options of a built-in one, which can name commands."""
    return drop_empty({"plugin": third_party_plugin("terminal")(value, section, around), **value.options})


def path_outside(value: Any, _section: Any, around: TrustContext) -> Any:
    """Return a path if it leads out of the folder of the file."""
    if value is None:
        return None
    root = around.folder.resolve()
    path = resolve_path(root, value, around).resolve()
    return None if path.is_relative_to(root) else value


def power_for_values(*values: Any) -> SelectUntrusted:
    return lambda value, _section, _around: value if value in values else None


def risky_variables(value: Any, _section: Any, _around: TrustContext) -> Any:
    """Return variables that can decide which programs run, and which hosts they use."""
    return {
        name: text for name, text in value.items() if not _SAFE_VARIABLES.fullmatch(name) or _STEERING.fullmatch(name)
    }


def new_notifiers(value: Any, _section: Any, around: TrustContext) -> Any:
    return [name for name in value if name not in ("desktop", *around.own.defaults.notifiers, *around.own.notifiers)]


def new_routes(value: Any, section: Any, around: TrustContext) -> Any:
    return drop_empty(
        {level: new_notifiers(getattr(value, level) or (), section, around) for level in type(value).model_fields}
    )


def plugin_files(value: Any, _section: Any, _around: TrustContext) -> Any:
    return [drop_empty({"path": plugin.path, "name": plugin.name}) for plugin in value]


def notifier_settings(value: Any, _section: Any, _around: TrustContext) -> Any:
    return {name: notifier.model_dump(mode="json") for name, notifier in value.items()}
