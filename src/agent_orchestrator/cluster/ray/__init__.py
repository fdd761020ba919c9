"""Ray: which nodes there are, which of them takes a session, and one worker on each.

    placer.py    the daemon's side: starts the bridge, keeps it alive, asks it
    bridge.py    a process of its own, the only one that speaks Ray: Ray kills its drivers when its head is lost
    actor.py     one detached actor per node: starts our process there, and restarts it
    node.py      that process: `cluster.node.worker`, which outlives the actor, and Ray

No work of a session goes through Ray: the worker dials the daemon, and everything else is said there. So sessions continue while Ray's
head is away, and what Ray pickles is numbers and names.
"""
