"""What the forges for tests share: the wire, Git, the ledger of what was asked, and how webhooks are sent."""
