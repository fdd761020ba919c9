"""What is read from the text at the end of an agent's turn: a question to a person, the verdict of a reviewer. Pure."""
