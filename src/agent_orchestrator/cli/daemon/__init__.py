"""Commands about the daemon and its machines: start, log, doctor, audit, nodes, the MCP bridge."""
