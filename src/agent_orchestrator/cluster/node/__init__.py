"""What runs on a node: `worker.py` connects to the daemon and serves its calls.

`call_server.py` answers calls for plugins, rescue and streams, `machine_calls.py` for programs and files, `repository.py` keeps the
node's copy of each project's repository, and `lease.py` measures until when an agent may work.
"""
