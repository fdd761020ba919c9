"""Pull requests and issues that live elsewhere: pushed, opened and landed by `changes.py`, read by `watching.py` and `tracking.py`, told
of by `hooks.py`.

`repositories.py` knows which forge serves a project. The forge's own ways are the plugins' matter (`plugins/scm/`), what follows from
what was read is the flow's (`flow/forge.py`).
"""

from agent_orchestrator.services.forges.changes import ForgeChanges
from agent_orchestrator.services.forges.checkup import Checkup
from agent_orchestrator.services.forges.hooks import Webhooks
from agent_orchestrator.services.forges.landed import AfterLanding
from agent_orchestrator.services.forges.outages import Outages
from agent_orchestrator.services.forges.repositories import Repositories
from agent_orchestrator.services.forges.tracking import Tracking
from agent_orchestrator.services.forges.watching import ForgeWatch

__all__ = ["AfterLanding", "Checkup", "ForgeChanges", "ForgeWatch", "Outages", "Repositories", "Tracking", "Webhooks"]
