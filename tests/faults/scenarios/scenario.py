"""The base class of scenarios."""

from __future__ import annotations

from tests.faults.scenarios.stage import CrashStage


class Scenario:
    """A scenario and the checks of its end."""

    config = "defaults: {{agent: demo, runtime: {runtime}}}\n"

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime

    def prepare(self, stage: CrashStage) -> None:
        """Create the repository before a daemon runs."""
        stage.box.repository(config=self.config.format(runtime=self.runtime))

    def close(self) -> None:
        """Release the scenario's resources."""

    def play(self, stage: CrashStage) -> None:
        """Run the person's commands, each when its condition is met."""
        raise NotImplementedError

    def is_settled(self, stage: CrashStage) -> bool:
        """Return whether everything requested has happened."""
        raise NotImplementedError

    def problems(self, stage: CrashStage) -> list[str]:
        """Return the problems at the end."""
        raise NotImplementedError
