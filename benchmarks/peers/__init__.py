"""Other orchestrators compared with ours, with the same agent and meter: each has an adapter, a TOML file of its commands."""
