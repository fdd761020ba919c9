from __future__ import annotations

import dataclasses

import pytest

from tests.agents.labs import CAN, LABS, Lab
from tests.agents.suite import Driven, HeadlessDriven


@pytest.fixture
def lab() -> Lab:
    return dataclasses.replace(LABS["goose"], can=CAN - {"queue", "limit"})


class TestGoose(Driven):
    agent_name = "goose"


class TestGooseHeadless(HeadlessDriven):
    agent_name = "goose"
