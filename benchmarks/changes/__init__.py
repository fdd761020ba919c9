"""Cases about changes: predicted conflicts, the merge queue, results of checks."""
