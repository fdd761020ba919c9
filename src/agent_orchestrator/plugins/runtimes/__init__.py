"""Runtimes: what keeps an agent's terminal alive, whatever happens to the daemon.

`tmux.py` uses a tmux server of our own, `process.py` a small PTY holder a session (`holder.py`, with `attach.py` as its
terminal client; both are standalone scripts of the standard library), `auto.py` picks one of them. `stopping.py` ends a
process and everything it started, `render.py` turns raw output into the visible text. What a message means, when it may
be sent, and what an exit means for a session is not decided here.
"""
