"""Runtimes: what keeps an agent's terminal alive, whatever happens to the daemon.

`tmux.py` uses a tmux server of our own (`tmux_server.py`), `process.py` a small PTY holder a session (`holding/`), `auto.py` picks one
of them. What both need: `launching.py` refuses what cannot be started, `stopping.py` ends a process and everything it started,
`render.py` turns raw output into the visible text, `keys.py` knows keys by name. What a message means, when it may be sent, and
what an exit means for a session is not decided here.
"""
