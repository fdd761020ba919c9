"""Configurations of other orchestrators, converted: what each key became is reported, nothing is dropped silently.

`recognition.py` finds out which orchestrator a file is from. Two kinds have our form, or nearly: their files go through `compat.py`
(`similar.py`). The others are translated key by key (`other_tools.py`). `merge.py` puts the result into a file of ours, whose own values
win unless told otherwise.
"""

from agent_orchestrator.config.importers.key_report import Brought, Entry
from agent_orchestrator.config.importers.merge import Merged, merge
from agent_orchestrator.config.importers.recognition import bring

__all__ = ["Brought", "Entry", "Merged", "bring", "merge"]
