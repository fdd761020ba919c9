"""Other orchestrators beside ours, with one agent and one meter: each is described by an adapter, a TOML file of its commands."""
