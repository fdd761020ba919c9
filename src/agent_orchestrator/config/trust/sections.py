"""Find the powers of a configuration file, section by section, or remove them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from agent_orchestrator.config import model as m
from agent_orchestrator.config.load import LoadedConfig
from agent_orchestrator.config.trust.agents import profile_override
from agent_orchestrator.config.trust.keys import NESTED_SECTION, TRUST_BY_KEY
from agent_orchestrator.config.trust.power import Power, TrustContext, drop_empty
from agent_orchestrator.config.trust.reactions import changed_rule, rule_powers, without_commands


def powers(loaded: LoadedConfig, around: TrustContext | None = None, *, waits: bool = False) -> dict[str, Any]:
    """Return everything that a file would run or open; with `waits`, only what has sessions wait for trust."""
    loaded = loaded.without_secrets or loaded
    around = _with_file_sections(loaded, around)
    all_powers = _section_powers(loaded.config, around, waits)
    for name in sorted(_daemon_keys()):
        all_powers.pop(name, None)
    return drop_empty({**all_powers, "variables": list(loaded.variables)})


def _with_file_sections(loaded: LoadedConfig, around: TrustContext | None) -> TrustContext:
    config = loaded.config
    projects = [*config.projects.values(), *([config.project] if config.project else [])]
    return replace(
        around or TrustContext(loaded.path.absolute().parent),
        defaults=config.defaults,
        profiles=config.agents,
        reactions=config.reactions,
        project_reactions=tuple(project.reactions for project in projects),
    )


def daemon_settings(loaded: LoadedConfig) -> dict[str, Any]:
    """Return what a file would decide for the daemon as a whole, besides its port."""
    loaded = loaded.without_secrets or loaded
    dumped = loaded.config.model_dump(mode="json", by_alias=True, include=_daemon_keys(), exclude_unset=True)
    return drop_empty(dumped)


def without_powers(loaded: LoadedConfig, around: TrustContext | None = None) -> m.Config:
    """Return the configuration without its powers, except guarded ones, which are refused where they are used."""
    loaded = loaded.without_secrets or loaded
    around = _with_file_sections(loaded, around)
    config = _without_powers(loaded.config, around, may_report=not loaded.variables)
    assert isinstance(config, m.Config)
    return config


def _daemon_keys() -> set[str]:
    return {
        name
        for name, entry in TRUST_BY_KEY[m.Config].items()
        if isinstance(entry, Power) and "daemon" in entry.affected_values
    }


def _table(section: BaseModel) -> Mapping[str, str | Power]:
    return TRUST_BY_KEY.get(type(section), {})


def _alias(section: BaseModel, name: str) -> str:
    return type(section).model_fields[name].alias or name


def _section_powers(section: BaseModel, around: TrustContext, waits: bool) -> dict[str, Any]:
    """Return the powers of a section and of the sections in it."""
    all_powers: dict[str, Any] = {}
    for name in type(section).model_fields:
        if name not in section.model_fields_set:
            continue
        value, entry = getattr(section, name), _table(section).get(name, NESTED_SECTION)
        if isinstance(entry, Power):
            if entry.blocks_start or not waits:
                all_powers[_alias(section, name)] = _to_json(entry.select(value, section, around))
        elif entry is NESTED_SECTION:
            inner = drop_empty(
                {
                    key: profile_override(key, child, around) or _section_powers(child, around, waits)
                    for key, child in _sections(value)
                }
            )
            all_powers[_alias(section, name)] = inner.get("", inner)
    if isinstance(section, m.AgentConfigSection) and section.options:
        all_powers["options"] = section.options
    return drop_empty(all_powers)


def _sections(value: Any) -> Iterator[tuple[str, BaseModel]]:
    if isinstance(value, BaseModel):
        yield "", value
    elif isinstance(value, Mapping):
        yield from ((str(key), child) for key, child in value.items() if isinstance(child, BaseModel))


def _to_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _without_powers(section: BaseModel, around: TrustContext, may_report: bool) -> BaseModel:
    """Return a section without the powers in it that are not guarded.

    `may_report`: its reactions may send messages, because no variables were filled in.
    """
    field_values: dict[str, Any] = {}
    set_fields = set(section.model_fields_set)
    for name, info in type(section).model_fields.items():
        value, entry = getattr(section, name), _table(section).get(name, NESTED_SECTION)
        if name not in set_fields:
            field_values[name] = value
        elif not isinstance(entry, Power):
            field_values[name] = (
                _children_without_powers(value, around, may_report) if entry is NESTED_SECTION else value
            )
        elif entry.select is rule_powers and may_report:
            field_values[name] = {
                key: without_commands(key, rule)
                for key, rule in value.items()
                if not changed_rule(key, rule, section, around)
            }
        elif isinstance(value, m.PluginSection) and entry.guarded:
            field_values[name] = (
                m.PluginSection() if entry.select(value, section, around).get("plugin") else _without_webhook(value)
            )
        elif entry.guarded or not (entry.select is rule_powers or entry.select(value, section, around)):
            field_values[name] = value
        else:
            field_values[name] = info.get_default(call_default_factory=True)
            set_fields.discard(name)
    return type(section).model_construct(set_fields, **field_values)


def _children_without_powers(value: Any, around: TrustContext, may_report: bool) -> Any:
    if isinstance(value, BaseModel):
        return _without_powers(value, around, may_report)
    if isinstance(value, Mapping):
        return {
            key: _without_powers(child, around, may_report) if isinstance(child, BaseModel) else child
            for key, child in value.items()
            if not (isinstance(child, BaseModel) and profile_override(key, child, around))
        }
    return value


def _without_webhook(value: m.PluginSection) -> m.PluginSection:
    """Return a forge or tracker without its webhook secret, so that no webhook can be signed."""
    return m.PluginSection(
        plugin=value.plugin, **{key: option for key, option in value.options.items() if key != "webhook"}
    )
