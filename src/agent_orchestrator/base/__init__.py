"""What knows no session: Git, processes, files, text, time, HTTP."""
