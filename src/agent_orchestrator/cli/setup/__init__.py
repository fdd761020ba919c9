"""Commands about projects, configuration, plugins, tokens and completion."""
