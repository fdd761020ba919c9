"""Run checks: a command at an exact commit, in its own clean checkout, and read the result.

`spec.py` describes what to run, `runner.py` runs it, and once more if it fails, using `checkout.py` (a folder with
the commit and the project's set-up), `process.py` (the command and every process it starts), `log.py` and `log_follower.py` (its output),
`summary.py`, `junit.py` and `runners/` (its result, test by test), `missing_environment.py` (what the environment lacks) and `results.py`
(stored results). `assessment.py` and `outcome.py` compare a change with its base branch; `proof.py` proves that a project's configuration
works.

    $AO_HOME/checks/results/<project>/<tree>/<name>.json, .log    the result
    $AO_HOME/checks/work/<project>/<digest>-<n>/                  a checkout: `tree/`, with our own files next to it
"""
