"""The `docker` runtime: agents in containers of Docker or podman, told as in `docs/docker.md`.

`runtime.py` is the plugin: the PTY holder of the `process` runtime, with a client of the engine in it (`attend.sh`) instead of the agent.
`engine.py` speaks to the engine, `images.py` gets or builds the image (`Dockerfile` is the shipped one), `mounts.py` says what a container
shows of this machine, `script.py` writes what it runs. `network.py`, `proxy.py` and `relay.py` are the network `allowlist`.
"""
