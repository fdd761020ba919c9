"""From events to facts. Pure."""
