"""What runs on a node: `worker.py` dials the daemon and serves it.

`calls_served.py` answers for plugins, rescue and files, `machine_calls.py` for programs, `repository.py` keeps the node's copy of each
project's repository, and `lease.py` says until when an agent may work.
"""
