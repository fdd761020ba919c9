"""Helpers that load a configuration from the text of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.load import LoadedConfig, load_text
from agent_orchestrator.config.model import Config
from agent_orchestrator.errors import ConfigError

FILE = Path("ao.yaml")


def load_config_text(text: str, **environ: str) -> Config:
    return load_text(text, FILE, environ).config


def load_document(text: str, **environ: str) -> LoadedConfig:
    return load_text(text, FILE, environ)


def load_problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, FILE, environ)
    return str(caught.value).splitlines()
