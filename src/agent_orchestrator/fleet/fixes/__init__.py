"""Fix what fails: measure it, group it by likely cause, start one agent per cause, and measure again before it counts as fixed.

`measure.py` is a program that the daemon runs as a local check, in a clean checkout: it runs checks and tools and says what fails. There,
`detection.py` finds the tools, `mentions.py` which of them a command runs, `tools.py` how each is asked for a report, `parsers/` read
reports, `suppressions.py` finds silenced failures, and `comparison.py` compares two measurements. In the daemon, `causes.py` groups,
`prompt.py` writes the task, `next_steps.py` decides what is next, `runs.py` does it, and `views.py` shows it.

    $AO_HOME/fixes/<run>/round-<n>.json            what was measured
    $AO_HOME/fixes/<run>/round-<n>-cause-<m>.json  what a verification is asked to do
    $AO_HOME/fixes/cache/<project>/                what tools keep for the next time
"""
