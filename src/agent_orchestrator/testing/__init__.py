"""What plugin authors test with: contract suites by slot. Shipped and public; nothing of the product itself imports it."""
