"""What a configuration would run or open of the user's, in a form that can be shown, compared and trusted.

Every key of the models is listed in `TRUST_BY_KEY` (`keys.py`), either with why it needs no trust or as a `Power`: a value that runs
something, passes something of the user's to others, or has things done without a person. Trust is in content: it holds as long as the
digest of all powers stays the same. A power of an untrusted file is either removed (`without_powers`), or stays and is refused where it
would be used (`guarded`): if a check were removed instead, a change could be merged unchecked. Which digests are trusted is recorded
by the daemon.

`agents.py`, `forges.py`, `reactions.py` and `values.py` decide which values of a key need trust; `sections.py` finds or removes them in a
file.
"""

from __future__ import annotations

from agent_orchestrator.config.trust.digests import code_digest as code_digest
from agent_orchestrator.config.trust.digests import code_files as code_files
from agent_orchestrator.config.trust.digests import digest as digest
from agent_orchestrator.config.trust.digests import file_digest as file_digest
from agent_orchestrator.config.trust.digests import sha256 as sha256
from agent_orchestrator.config.trust.isolation import wall_digests as wall_digests
from agent_orchestrator.config.trust.isolation import walls as walls
from agent_orchestrator.config.trust.keys import TRUST_BY_KEY as TRUST_BY_KEY
from agent_orchestrator.config.trust.keys import trust_table as trust_table
from agent_orchestrator.config.trust.power import Power as Power
from agent_orchestrator.config.trust.power import TrustContext as TrustContext
from agent_orchestrator.config.trust.sections import daemon_settings as daemon_settings
from agent_orchestrator.config.trust.sections import powers as powers
from agent_orchestrator.config.trust.sections import without_powers as without_powers
