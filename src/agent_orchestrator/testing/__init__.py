"""Tools for the tests of plugins: contract suites, fixtures, in-memory plugins and test servers. Public; the product does not import it."""

from agent_orchestrator.base.host import LocalHost as LocalHost
