"""The connection between the daemon and a node.

`connection.py` carries many calls and byte streams (`channel.py`) at once, both ways, over a WebSocket (`transports.py`); `calls.py` says
what may be called and how arguments and answers are written; `tunnel.py` attaches to a terminal on a node.
"""
