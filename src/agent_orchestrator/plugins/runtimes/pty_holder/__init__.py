"""Holds one agent's terminal: a PTY, its log, its scrollback and its attachments. Runs alone, and outlives the daemon.

`holder.py` is the process, `spec.py` what it is told and what it writes down, `terminal.py` what it knows of terminals, `lease.py` until
when it may; they import nothing but the standard library's cores (those beginning with an underscore: the public ones would triple the
time to start; what has a lease can afford `ctypes`) and each other. `conpty.py` is the process on Windows, which can afford more.
`attach.py` is the client for a person's terminal, a script of its own. They are started by `process.py`:

    python -I -S -c "…; from pty_holder.holder import main; main()" FOLDER SPEC

SPEC is a file of NUL-separated entries, a letter and a value each: `a` argument, `e` NAME=value, `d` working directory, `i` standard
input, `l` log, `s` socket, `p` private folder, `g` generation, `c` columns, `r` rows, `t` lease. It is removed when read, for it holds the
agent's environment.

Files in the private folder, each written whole or not at all:

    holder.<g>.lock    locked while the holder lives: there is never a second one
    holder.<g>.json    {"holder", "holderStarted", "agent", "agentStarted"}: written before the agent's program starts;
                       once it is there, this generation is not started again
    delivered.<g>      a line for each message id that was written to the terminal
    exit.<g>.json      {"code", "signal"}: the agent has ended, and everything above is complete; with "reason" where we ended it

The lease is a file with a deadline in nanoseconds since the machine started (sleep counts), replaced whole by whoever renews it. It is
read when the deadline that was read before has come (`lease.py`); if that is not put off by then, the agent is killed with all that it
started, however it tries to get away. That needs nobody but the holder, and a holder that is killed takes its agent with it.

Frames to the holder, on its socket, are a letter, four bytes of length (big-endian) and that many bytes:

    Q   a request, fields separated by NUL; answered by one such frame, then closed:
            deliver ID ENTER TEXT   ->  delivered | held REASON | ended | due (the Enter of the message before is not sent yet)
            press HEX               ->  done
            resize COLUMNS ROWS     ->  done
            screen                  ->  COLUMNS ROWS OUTPUT
    A   attach (columns and rows, two bytes each): from now on the answer is the terminal's output, raw: scrollback, then live
    W   attach to watch (as A): its keystrokes are dropped, and its size counts only while nobody is attached by A
    K   keystrokes, after A
    R   the attachment's new size, after A or W (as in A); the size that was set last holds for all

On Windows there is no socket but a file in its place, with a port of the loopback and a token; each connection begins with

    T   the token; without it nothing else is done

An attachment that reads too slowly loses what is in between and gets the scrollback again; it holds up nobody.
"""
