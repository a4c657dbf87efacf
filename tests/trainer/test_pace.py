from __future__ import annotations

import pytest

from trainer.pace import Pace, duration


def test_a_line_says_the_mean_loss_the_speed_and_what_is_left_since_the_last_one() -> None:
    said: list[str] = []
    now = [0.0]
    pace = Pace(said.append, every=30.0, clock=lambda: now[0])
    now[0] = 20.0
    pace.step("step 1 of 9 (a)", rows=2, tokens=2000, trained=100, loss=4.0, rows_left=16)
    assert said == []
    now[0] = 40.0
    pace.step("step 2 of 9 (a)", rows=2, tokens=2000, trained=300, loss=2.0, rows_left=14)
    assert said == ["step 2 of 9 (a): loss 2.500, 100 tokens/s, about 2 min left in this stage"]
    now[0] = 80.0
    pace.step("step 3 of 9 (a)", rows=2, tokens=400, trained=0, loss=None, rows_left=2)
    assert said[1:] == ["step 3 of 9 (a): 10 tokens/s, about 40 s left in this stage"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"), (360_000, "100.0 h")],
)
def test_durations_are_said_in_the_unit_that_fits(seconds: float, said: str) -> None:
    assert duration(seconds) == said
