"""Fixing: what fails is measured, grouped by likely cause, given to one agent per cause, and measured again before it counts as fixed.

`measure.py` is a program: it runs checks and tools in a checkout and says what fails there. The daemon runs it as a local check,
so it gets a clean checkout of an exact commit with the project's set-up. Within it, `detection.py` finds the tools, `mentions.py` which
of them a command runs, `tools.py` knows how each is asked for a report, `parsing/` reads reports, `suppressions.py` looks for failures
that were silenced instead of fixed, and `comparison.py` compares two measurements. In the daemon, `causes.py` finds causes,
`prompt.py` words the task, `next_steps.py` says what is next, `runs.py` does it, and `views.py` shows it.

    $AO_HOME/fixes/<run>/round-<n>.json            what was measured
    $AO_HOME/fixes/<run>/round-<n>-cause-<m>.json  what a verification is asked to do
    $AO_HOME/fixes/cache/<project>/                what tools keep for the next time
"""
