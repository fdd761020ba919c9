"""Sessions on other machines.

Only `daemon/wiring.py` and the server's services and routes for nodes and Git import this package.
"""
