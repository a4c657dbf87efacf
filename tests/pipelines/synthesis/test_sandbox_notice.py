"""Where the strongest level is missing, a warning says once what programs can do."""

from __future__ import annotations

import warnings

import pytest

from pipelines.synthesis.sandbox import Sandbox
from pipelines.synthesis.sandbox.notice import SandboxWarning, warn_of_limits


def test_without_bubblewrap_it_is_said_once_what_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.synthesis.sandbox.client.bubblewrap_program", lambda: None)
    monkeypatch.setattr("pipelines.synthesis.sandbox.notice._told", set())
    with pytest.warns(SandboxWarning, match="bubblewrap.*not installed") as said:
        for _ in range(2):
            Sandbox().close()
    assert len(said) == 1
    monkeypatch.setattr("pipelines.synthesis.sandbox.notice._told", set())
    with pytest.warns(SandboxWarning, match="Programs can reach the network, read and write every file"):
        warn_of_limits(["network", "files"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Sandbox(level="limits").close()  # asked for by name: nothing to warn of
