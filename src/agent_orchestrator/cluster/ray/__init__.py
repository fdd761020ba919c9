"""Ray, and nothing but Ray: which nodes there are, which of them takes a session, and one worker of ours on each.

    placer.py    the daemon's side: starts the bridge, keeps it alive, asks it
    bridge.py    a process of its own, the only one that speaks Ray: Ray ends its drivers hard when its head is lost
    actor.py     one detached actor a node: starts our process there, takes it up again, starts it again
    node.py      that process: `nodes.worker`, which outlives the actor, and Ray

No work of a session goes through Ray: the worker dials the daemon, and whatever is said between them is said there. So sessions go on
while Ray's head is away, and what Ray pickles is numbers and names.
"""
