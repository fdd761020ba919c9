"""The permission requests of agents: rules, the commands that they allow, and the answers of people."""
