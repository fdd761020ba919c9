"""Run the scripted model by hand: `python -m agent_orchestrator.testing.model --port 8080 --log requests.jsonl`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from agent_orchestrator.testing import model as package


@click.command(help=package.__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", default=0, help="The port on loopback; by default any that is free.")
@click.option("--log", type=click.Path(path_type=Path), help="Append each exchange to this file, as a line of JSON.")
@click.option("--url-file", type=click.Path(path_type=Path), help="Write the address into this file.")
def main(port: int, log: Path | None, url_file: Path | None) -> None:
    """Serve until a signal. GET /_model/exchanges returns the log; POST /_model/release/NAME releases a held answer."""
    try:
        with package.ScriptedModel(port=port, log=log) as model:
            if url_file is not None:
                url_file.write_text(model.url)
            click.echo(model.url)
            sys.stdout.flush()
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on port {port}: {error.strerror}; choose another with --port"
        ) from None


if __name__ == "__main__":
    main()
