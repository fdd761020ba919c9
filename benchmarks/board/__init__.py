"""Cases about the dashboard: the board in a browser, its terminals, its event stream."""
