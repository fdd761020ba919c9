"""Helpers that load a configuration from the text of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.load import Loaded, load_text
from agent_orchestrator.config.model import Config
from agent_orchestrator.errors import ConfigError

FILE = Path("ao.yaml")


def config(text: str, **environ: str) -> Config:
    return load_text(text, FILE, environ).config


def loaded(text: str, **environ: str) -> Loaded:
    return load_text(text, FILE, environ)


def refused(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, FILE, environ)
    return str(caught.value).splitlines()
