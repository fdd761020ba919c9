"""What stories have in common."""

from __future__ import annotations

from tests.faults.scenarios.stage import Stage


class Scenario:
    """A story and its end."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime

    def prepare(self, stage: Stage) -> None:
        """The repository, before any daemon runs."""
        stage.box.repository(config=self.config.format(runtime=self.runtime))

    def close(self) -> None:
        """Nothing of it is left."""

    def play(self, stage: Stage) -> None:
        """What the person does, each step when it is time for it."""
        raise NotImplementedError

    def settled(self, stage: Stage) -> bool:
        """Has all that was asked for happened?"""
        raise NotImplementedError

    def wrong(self, stage: Stage) -> list[str]:
        """What is not as it must be in the end."""
        raise NotImplementedError
