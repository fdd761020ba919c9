"""Creating a session: what is asked for (`new_session.py`), and what it gets: name, branch, base, folder, ports, texts (`choices.py`)."""
