"""Sessions on other machines. Nothing else needs this package."""
