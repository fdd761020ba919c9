"""Runtimes: what keeps an agent's terminal alive, whatever happens to the daemon.

`tmux.py` uses a tmux server of our own (`tmux_server.py`), `process.py` a small PTY holder a session (`pty_holder/`), `auto.py` picks one
of them. What both need: `launch_checks.py` refuses what cannot be started, `process_tree.py` ends a process and everything it started,
`screen_text.py` turns raw output into the visible text, `keys.py` knows keys by name. What a message means, when it may be sent, and
what an exit means for a session is not decided here.
"""
