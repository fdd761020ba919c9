"""The MCP server at `/mcp`: what programs and agents may see and do here, as tools and resources of the Model Context Protocol.

`scopes.py` says who may what, `tools.py` what a tool is, `worker_tools.py`, `fleet_tools.py`, `action_tools.py` and `plan_tools.py` hold the tools themselves and
`resources.py` the resources; `protocol.py` speaks the protocol and is the only module that imports its library, `endpoint.py` loads it
with the first request.
"""
