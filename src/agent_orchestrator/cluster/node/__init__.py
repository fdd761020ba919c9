"""What runs on a node: the worker, what it answers, its copy of the repository."""
