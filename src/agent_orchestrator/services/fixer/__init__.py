"""Fixing: what fails is measured, grouped by likely cause, given to one agent per cause, and measured again before it counts as fixed.

`verify.py` is a program: it runs checks and tools in a checkout and says what fails there. The daemon runs it as a local check,
so it gets a clean checkout of an exact commit with the project's set-up. Within it, `detect.py` finds the tools, `mentions.py` which
of them a command runs, `commands.py` knows how each is asked for a report, `parsing/` reads reports, `guards.py` looks for failures
that were silenced instead of fixed, and `judging.py` compares two measurements. In the daemon, `grouping.py` finds causes,
`prompting.py` words the task, `rounds.py` says what is next, `run.py` does it, and `views.py` shows it.

    $AO_HOME/fixes/<run>/round-<n>.json            what was measured
    $AO_HOME/fixes/<run>/round-<n>-cause-<m>.json  what a verification is asked to do
    $AO_HOME/fixes/cache/<project>/                what tools keep for the next time
"""
