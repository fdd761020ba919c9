"""The connection between the daemon and a node.

`connection.py` carries many calls and byte streams (`channel.py`) at once, both ways, over a WebSocket (`transports.py`); `calls.py`
defines the calls and how arguments and answers are encoded; `tunnel.py` attaches to a terminal on a node.
"""
