"""The routes, one file a noun. Each function reads the request, calls one service and shapes the answer, and no more."""
