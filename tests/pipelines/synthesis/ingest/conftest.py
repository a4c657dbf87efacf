"""Writing small inputs and reading them back."""

import json

import pytest

from pipelines.synthesis.ingest import SetAside, read_file


@pytest.fixture
def ingest(tmp_path):
    """`ingest(value)` writes one JSON value (or text), `ingest(lines=[…])` a line for each.

    Gives (trajectories, set aside).
    """

    def run(value=None, *, lines=None, format="auto"):
        path = tmp_path / "input"
        if lines is not None:
            path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        else:
            path.write_text(value if isinstance(value, str) else json.dumps(value))
        items = list(read_file(str(path), format))
        return (
            [item for item in items if not isinstance(item, SetAside)],
            [item for item in items if isinstance(item, SetAside)],
        )

    return run
