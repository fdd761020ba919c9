"""The base class of scenarios."""

from __future__ import annotations

from tests.faults.scenarios.stage import Stage


class Scenario:
    """A scenario and the checks of its end."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime

    def prepare(self, stage: Stage) -> None:
        """Create the repository before a daemon runs."""
        stage.box.repository(config=self.config.format(runtime=self.runtime))

    def close(self) -> None:
        """Release the scenario's resources."""

    def play(self, stage: Stage) -> None:
        """Run the person's commands, each when its condition is met."""
        raise NotImplementedError

    def settled(self, stage: Stage) -> bool:
        """Return whether everything requested has happened."""
        raise NotImplementedError

    def wrong(self, stage: Stage) -> list[str]:
        """Return the problems at the end."""
        raise NotImplementedError
