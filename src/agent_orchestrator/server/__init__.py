"""The HTTP side of the daemon: REST routes, Server-Sent Events, the terminal's WebSocket, and who may use them.

A request passes `access/gate.py` (who asks, from where, how much; the sessions list is answered right there), then one function in
`routes/` that reads the request, calls one service and shapes the answer. Nothing here decides anything about sessions, touches Git or
the store, or keeps state.
"""
