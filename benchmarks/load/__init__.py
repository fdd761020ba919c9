"""A fleet under load for minutes: agents with much output, viewers, many webhooks; what is lost, late or left running."""
