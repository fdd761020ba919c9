"""Ray: which nodes there are, which of them a session goes to, and one worker on each.

    placer.py    the daemon's side: starts the bridge, restarts it, sends it requests
    bridge.py    a separate process, the only one that uses Ray, because Ray kills its drivers when its head is lost
    actor.py     one detached actor per node: starts our process there, and restarts it
    node.py      that process: `cluster.node.worker`, which outlives the actor and Ray

No work of a session goes through Ray: the worker connects to the daemon, and everything else uses that link. So sessions continue while
Ray's head is away, and what Ray pickles is only numbers and names.
"""
