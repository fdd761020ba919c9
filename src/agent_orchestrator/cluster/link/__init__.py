"""Sessions on other machines: what runs on a node, and the daemon's proxies to it.

link.py        one connection: many calls and byte streams (`channel.py`) at once, both ways, over a WebSocket (`transports.py`)
calls.py       what may be called, and how arguments and answers are written
worker.py      the node's side: dials the daemon, and serves it
serving.py     what it answers: the same plugins as on the daemon's machine, with the node's own home
answering.py   and what it answers about programs and files
repository.py  the node's copies of the projects' repositories
lease.py       until when an agent on a node may work, for both sides
mirror.py      the session's files that grow on the node and grow on the daemon's machine too, for both sides
remote.py      the daemon's side: `RemoteNode`, which gives a node's workspaces, runtime and agents (`cluster/nodes/proxies.py`), its terminals
               (`tunnel.py`), Git and programs (`cluster/nodes/machine.py`), and files
"""
