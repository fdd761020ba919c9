"""The `docker` runtime: agents in containers of Docker or podman, as described in `docs/docker.md`.

`runtime.py` is the plugin: the PTY holder of the `process` runtime, which runs a client of the engine (`attend.sh`) instead of the
agent. `engine.py` runs the engine's commands, `images.py` gets or builds the image (`Dockerfile` is the default one), `mounts.py`
chooses what a container sees of this machine, `script.py` writes what it runs. `network.py`, `proxy.py` and `relay.py` are the network
`allowlist`.
"""
