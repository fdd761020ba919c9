"""The MCP server at `/mcp`: tools and resources of the Model Context Protocol, for programs and agents.

`server/access/caller.py` says who may do what, `tools.py` what a tool is. The tools are in `worker_tools.py`, `fleet_tools.py`,
`action_tools.py` and `plan_tools.py`, the resources in `resources.py`. `protocol.py` is the only module that imports the protocol's
library; `endpoint.py` loads it with the first request.
"""
