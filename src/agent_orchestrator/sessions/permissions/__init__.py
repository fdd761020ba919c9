"""Permission requests of agents: rules, the commands they allow, and a person's answers."""
