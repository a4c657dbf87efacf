"""What a scripted teacher says after a failure: the line of the observation that tells what is wrong."""

from __future__ import annotations

import random

import pytest

from pipelines.synthesis.teachers import phrases

TRACEBACK = (
    "printed before\nTraceback (most recent call last):\n"
    '  File "/workspace/main.py", line 2, in <module>\n    pritn(x)\n    ^^^^^\n'
    "NameError: name 'pritn' is not defined\n\nexit code 1"
)


@pytest.mark.parametrize(
    ("kind", "observation", "said"),
    [
        ("bad_code", TRACEBACK, "`NameError: name 'pritn' is not defined`"),
        ("wrong_path", "Error: no such file: a.py\nmore", "`no such file: a.py`"),
        ("malformed_arguments", "Error: the arguments are not valid JSON: Extra data", "`Extra data`"),
    ],
)
def test_a_recovery_quotes_the_line_that_tells(kind: str, observation: str, said: str) -> None:
    for seed in range(6):
        sentence = phrases.recovery(random.Random(seed), kind, observation, "run_code")
        assert said in sentence
        assert "Traceback" not in sentence


def test_a_missing_folder_is_made_and_a_wrong_one_is_left_alone() -> None:
    said = "Error: no such folder: a/reports"
    for seed in range(12):
        for kind in ("missing_folder", "wrong_folder", "wrong_path"):
            sentence = phrases.recovery(random.Random(seed), kind, said, "write_file")
            assert "`no such folder: a/reports`" in sentence
            assert "write_file" not in sentence  # the tool that failed does not make a folder
        made = phrases.recovery(random.Random(seed), "missing_folder", said, "make_folder")
        assert "I make it first" in made or "made before" in made


def test_an_old_text_that_is_there_twice_is_made_longer_not_copied_again() -> None:
    for seed in range(6):
        said = "Error: the old text occurs 18 times in a.py; give more of its surroundings"
        sentence = phrases.recovery(random.Random(seed), "ambiguous_edit", said, "edit")
        assert "whole lines" in sentence or "enough around it" in sentence
