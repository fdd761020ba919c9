"""Holds `run_plugin` alone, for sessions that the release before has started. It goes with the next release."""
