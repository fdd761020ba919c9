"""A fleet under load for minutes: chatty agents, people who look on, a forge that tells much; what is lost, late or left behind."""
