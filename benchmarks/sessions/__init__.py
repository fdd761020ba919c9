"""Cases about sessions: start, status, messages, reactions, workspaces, containers, the cluster."""
