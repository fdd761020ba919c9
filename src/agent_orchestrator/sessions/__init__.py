"""Sessions: creation, workspace, agent, messages, questions, stop and restore."""
