"""What plugin authors test with: contract suites by slot. Shipped and public; nothing of the product imports it."""

from agent_orchestrator.base.host import LocalHost as LocalHost
