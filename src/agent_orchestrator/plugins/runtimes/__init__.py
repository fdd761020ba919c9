"""Runtimes: keep an agent's terminal alive, independently of the daemon.

`tmux.py` uses Agent Orchestrator's own tmux server (`tmux_server.py`), `process.py` one small PTY holder per session (`pty_holder/`),
`auto.py` picks one of them. Shared: `launch_checks.py` refuses what cannot be started, `single_use_files.py` removes files that were read,
`process_tree.py` ends a process and everything it started, `screen_text.py` turns raw output into the visible text, `keys.py` maps
names of keys to bytes. What a message means, when it may be sent, and what an exit means for a session is not decided here.
"""
