"""Holds one agent's terminal: a PTY, its log, its scrollback and its attachments. Runs as a separate process and outlives the daemon.

`holder.py` is the process, `spec.py` its specification and the files it writes, `terminal.py` what it tracks of terminals, `lease.py`
the deadline until which the agent may run; they import only the standard library's core modules (those beginning with an underscore:
the public ones would triple the time to start; a holder with a lease can afford `ctypes`) and each other. `conpty.py` is the process on
Windows, which can afford more. `attach.py` is the client for a person's terminal, a separate script. They are started by
`runtimes/process.py`:

    python -I -S -c "…; from pty_holder.holder import main; main()" FOLDER SPEC

SPEC is a file of NUL-separated entries, a letter and a value each: `a` argument, `e` NAME=value, `d` working directory, `i` standard
input, `l` log, `s` socket, `p` private folder, `g` generation, `c` columns, `r` rows, `t` lease. It is removed when read, because it
contains the agent's environment.

Files in the private folder, each written atomically:

    holder.<g>.lock    locked while the holder lives: there is never a second one
    holder.<g>.json    {"holder", "holderStarted", "agent", "agentStarted"}: written before the agent's program starts;
                       once it exists, this generation is not started again
    delivered.<g>      a line for each message id that was written to the terminal
    exit.<g>.json      {"code", "signal"}: the agent has ended, and everything above is complete; with "reason" if the holder ended it

The lease is a file with a deadline in nanoseconds since the machine started (sleep counts), replaced atomically by each renewal. It is
read when the deadline that was read before has come (`lease.py`); if it was not renewed by then, the agent is killed with all that it
started, even processes that left its session. That requires only the holder, and a killed holder takes its agent with it.

Frames to the holder, on its socket, are a letter, four bytes of length (big-endian) and that many bytes:

    Q   a request, fields separated by NUL; answered by one such frame, then closed:
            deliver ID ENTER TEXT   ->  delivered | held REASON | ended | due (the Enter of the message before is not sent yet)
            press HEX               ->  done
            resize COLUMNS ROWS     ->  done
            screen                  ->  COLUMNS ROWS OUTPUT
    A   attach (columns and rows, two bytes each): from now on the answer is the terminal's output, raw: scrollback, then live
    W   attach to watch (as A): its keystrokes are dropped, and its size counts only while no A is attached
    K   keystrokes, after A
    R   the attachment's new size, after A or W (as in A); the size that was set last applies to all

On Windows there is a file instead of the socket, with a port of the loopback and a token; each connection begins with

    T   the token; without it the connection is closed

An attachment that reads too slowly loses what is in between and gets the scrollback again; it does not delay the others.
"""
