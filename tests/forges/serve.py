"""`make forge KIND=github`: run a test forge or tracker for use by hand, with the set_schema_variables that `make test-forges` fetched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agent_orchestrator.testing.forge.__main__ import main
from tests.forges import fetch
from tests.forges.published import linear_types


def set_schema_variables() -> None:
    """Set the environment variables that name the published set_schema_variables, for those that were fetched."""
    if fetch.GRAPHQL.is_present:
        os.environ.setdefault("AO_GITHUB_SCHEMA", str(fetch.GRAPHQL.path(fetch.GRAPHQL.files[0])))
    if fetch.LINEAR.is_present:
        schema = fetch.LINEAR.folder / "schema.graphql"
        if not schema.exists():
            schema.write_text(linear_types.sdl(Path(fetch.LINEAR.path(fetch.LINEAR.files[0])).read_text()))
        os.environ.setdefault("AO_LINEAR_SCHEMA", str(schema))


if __name__ == "__main__":
    set_schema_variables()
    sys.exit(main())
