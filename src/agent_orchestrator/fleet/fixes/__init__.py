"""Fix failures: measure them, group them by likely cause, start one agent per cause, and measure again before a fix counts.

`measure.py` is a program that the daemon runs as a local check, in a clean checkout: it runs checks and tools and reports what fails. It
uses `detection.py` to find the tools, `command_expansion.py` to see which of them a command runs, `tools.py` to make each tool write a
report, `parsers/` to read reports, `suppressions.py` to find silenced failures, and `comparison.py` to compare two measurements. In the
daemon, `causes.py` groups failures, `prompt.py` writes the task, `next_steps.py` decides what is next, `runs.py` does it, and `views.py`
shows it.

    $AO_HOME/fixes/<run>/round-<n>.json            the measurement of a round
    $AO_HOME/fixes/<run>/round-<n>-cause-<m>.json  the spec that verifies the fix of a cause
    $AO_HOME/fixes/cache/<project>/                caches of tools
"""
