"""Configurations of other orchestrators, brought over: what each key became is told, nothing goes silently.

`reading.py` finds out whose file it is. Two kinds have our own form, or nearly: their files go through `compat.py` (`alike.py`). The
others are translated key by key (`others.py`). `merging.py` puts the outcome into a file of ours, whose own words win unless told
otherwise.
"""

from agent_orchestrator.config.importing.merging import Merged, merge
from agent_orchestrator.config.importing.reading import bring
from agent_orchestrator.config.importing.told import Brought, Entry

__all__ = ["Brought", "Entry", "Merged", "bring", "merge"]
