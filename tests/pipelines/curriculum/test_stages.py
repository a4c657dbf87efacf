"""Stage planning: every record once or in the audit, shares in trained tokens, whole rows, long ones where they fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.curriculum.rows import Records
from pipelines.curriculum.stages import KINDS, Plan, fair_shares, kind_of, plan_stages
from schemas.recipe import SftStage
from schemas.trajectory import Message, ToolCall, Trajectory

PUBLISHED = [
    {"reasoning": 0.827, "general": 0.116, "agentic": 0.057},
    {"reasoning": 0.478, "general": 0.227, "agentic": 0.295},
    {"reasoning": 0.224, "general": 0.087, "agentic": 0.689},
]
CONTEXTS = [65_536, 131_072, 262_144]


def stages(budget: int, contexts: list[int] = CONTEXTS) -> list[SftStage]:
    return [
        SftStage.model_validate({"context_tokens": c, "trained_tokens": budget, "shares": s})
        for c, s in zip(contexts, PUBLISHED, strict=False)
    ]


def records(rows: list[tuple[str, int, int, float]]) -> Records:
    """(kind, tokens, trained, difficulty) rows."""
    return Records(
        [f"{i:08d}" for i in range(len(rows))],
        [kind for kind, *_ in rows],
        np.array([tokens for _, tokens, _, _ in rows], dtype=np.int64),
        np.array([trained for _, _, trained, _ in rows], dtype=np.int64),
        np.array([difficulty for *_, difficulty in rows], dtype=np.float64),
    )


def drawn(seed: int, counts: dict[str, tuple[int, float, float, float]]) -> Records:
    """Lognormal lengths by kind: (how many, median, sigma, trained share)."""
    generator = np.random.default_rng(seed)
    rows = []
    for kind, (count, median, sigma, share) in counts.items():
        for length in np.clip(generator.lognormal(np.log(median), sigma, count), 50, 260_000).astype(int).tolist():
            rows.append((kind, length, max(1, int(length * share)), float(generator.uniform(1, 10))))
    return records(rows)


def used(plan: Plan) -> list[int]:
    return [i for stage in plan.stages for row in stage.rows for i in row]


PLENTY = {"reasoning": (6000, 900, 0.7, 0.8), "general": (4000, 800, 0.8, 0.5), "agentic": (1500, 12_000, 1.2, 0.15)}


def test_with_plenty_every_stage_has_its_shares_its_budget_and_full_rows() -> None:
    supply = drawn(0, PLENTY)
    plan = plan_stages(supply, stages(1_000_000), 1)
    for stage, wanted in zip(plan.stages, PUBLISHED, strict=True):
        report = stage.report
        assert report["fill"] >= 0.99 and report["short_rows"] == 0
        assert 0.9 <= report["trained_tokens"] / 1_000_000 <= 1.01
        for kind, share in wanted.items():
            assert abs(report["shares"][kind]["reached"] - share) <= 0.01
            assert report["shares"][kind]["wanted"] == share


def test_long_records_start_the_stages_that_only_they_need() -> None:
    supply = drawn(0, PLENTY)
    plan = plan_stages(supply, stages(300_000), 1)
    for number in (1, 2):
        assert plan.stages[number].report["longest_segment"] > CONTEXTS[number - 1]
    assert all(sum(supply.lengths[row]) <= stage.capacity for stage in plan.stages for row in stage.rows)


@pytest.mark.parametrize("others", [0, 40])
def test_the_only_long_record_lands_in_its_stage(others: int) -> None:
    rows = [("agentic", 70_000, 5_000, 9.0), ("agentic", 140_000, 9_000, 9.0)]
    rows += [(kind, 9_000 + 137 * i, 2_000, 3.0) for i in range(others) for kind in KINDS]
    plan = plan_stages(records(rows), stages(100_000), 1)
    assert 0 in [i for row in plan.stages[1].rows for i in row]
    assert 1 in [i for row in plan.stages[2].rows for i in row]
    if others:
        assert all(stage.report["fill"] >= 0.95 for stage in plan.stages)
    else:
        assert [stage.report["short_rows"] for stage in plan.stages] == [0, 1, 1]


def test_short_and_easy_records_come_first() -> None:
    rows = [("reasoning", 1_000, 800, float(d)) for d in range(1, 11) for _ in range(100)]
    plan = plan_stages(records(rows), stages(150_000), 1)
    mean = [float(np.mean([rows[i][3] for row in stage.rows for i in row])) for stage in plan.stages]
    assert mean[0] < mean[1] < mean[2]


def test_a_stage_may_take_the_hard_ones_first() -> None:
    rows = [("reasoning", 1_000, 800, float(d)) for d in range(1, 11) for _ in range(100)]

    def first_mean(order: str | None) -> float:
        stage = {"context_tokens": 65_536, "trained_tokens": 150_000, "shares": PUBLISHED[0], "order": order}
        plan = plan_stages(records(rows), [SftStage.model_validate(stage)], 1)
        return float(np.mean([rows[i][3] for row in plan.stages[0].rows for i in row]))

    assert first_mean(None) == first_mean("easy_first") < 2.5
    assert first_mean("hard_first") > 8.5


def test_scarcity_is_shared() -> None:
    rows = [("reasoning", 1_000, 800, 5.0)] * 300 + [("agentic", 6_000 + i, 900, 5.0) for i in range(900)]
    rows += [("general", 900, 600, 5.0)] * 400
    plan = plan_stages(records(rows), stages(200_000), 1)
    reached = [stage.report["shares"]["reasoning"]["trained_tokens"] for stage in plan.stages]
    wanted = [share["reasoning"] * 200_000 for share in PUBLISHED]
    ratios = [r / w for r, w in zip(reached, wanted, strict=True)]
    assert sum(reached) == 300 * 800
    assert min(ratios) > 0.7  # 240,000 of the 305,800 wanted are 0.78, less what whole rows leave to the next stage
    assert plan.stages[0].report["shares"]["reasoning"]["shortfall"] == round(wanted[0]) - reached[0]


@pytest.mark.parametrize(
    ("wants", "supply", "parts"),
    [
        ([10, 10], [40, 40], [1, 1]),
        ([10, 10], [10, 10], [0.5, 0.5]),
        ([10, 10], [2, 12], [0.2, 1]),
        ([10, 10, 10], [2, 12, 12], [0.2, 0.5, 0.5]),
        ([0, 10], [0, 5], [0.5, 0.5]),
        ([10, 0], [0, 0], [0, 1]),
        ([], [], []),
    ],
)
def test_fair_shares(wants: list[float], supply: list[float], parts: list[float]) -> None:
    assert fair_shares(wants, supply) == parts


def test_a_kind_that_is_not_there_leaves_its_share_to_the_others() -> None:
    rows = [("agentic", 6_000 + i, 900, 5.0) for i in range(900)] + [("general", 900, 600, 5.0)] * 400
    plan = plan_stages(records(rows), stages(200_000), 1)
    first = plan.stages[0].report
    assert first["kinds_without_supply"] == ["reasoning"]
    assert first["trained_tokens"] >= 190_000
    assert first["shares"]["general"]["reached"] == pytest.approx(0.116 / (0.116 + 0.057), abs=0.03)
    assert first["shares"]["reasoning"] == {"wanted": 0.827, "reached": 0.0, "trained_tokens": 0, "shortfall": 165_400}


def test_every_reason_of_the_audit() -> None:
    rows = [
        ("reasoning", 300_000, 10, 1.0),
        ("reasoning", 100, 0, 1.0),
        *[("reasoning", 64_000, 50_000, 1.0)] * 40,
        ("general", 200_000, 9_000, 1.0),
        ("general", 201_000, 9_000, 1.0),
    ]
    plan = plan_stages(records(rows), stages(100_000), 1)
    reasons = dict(plan.left_out)
    assert reasons[0] == "too_long" and reasons[1] == "nothing_to_train"
    assert "over_budget" in {reasons.get(i) for i in range(2, 42)}


def test_a_row_that_nothing_can_fill_is_named_so() -> None:
    rows = [("agentic", 140_000 + i, 10_000, 5.0) for i in range(3)]
    plan = plan_stages(records(rows), stages(100_000), 1)
    assert [len(stage.rows) for stage in plan.stages] == [0, 0, 1]
    assert plan.stages[2].report["short_rows"] == 1
    assert [reason for _, reason in plan.left_out] == ["no_full_row", "no_full_row"]


def test_no_records_and_no_stages() -> None:
    plan = plan_stages(records([]), stages(1000), 1)
    assert [(s.rows, s.report["fill"]) for s in plan.stages] == [([], None)] * 3
    assert plan_stages(records([("general", 5, 5, 1.0)]), [], 1).left_out == [(0, "too_long")]


def test_without_shares_kinds_are_taken_as_they_come() -> None:
    rows = [("general", 60, 30, 5.0)] * 60 + [("agentic", 60, 30, 5.0)] * 20
    plan = plan_stages(records(rows), [SftStage(context_tokens=480, trained_tokens=1_200)], 1)
    reached = plan.stages[0].report["shares"]
    assert plan.stages[0].report["trained_tokens"] == 1_200
    assert reached["general"]["reached"] == pytest.approx(0.75, abs=0.05)
    assert reached["general"]["wanted"] is None


row = st.tuples(
    st.sampled_from(KINDS), st.integers(1, 150), st.integers(0, 40), st.sampled_from([1.0, 5.0, float("nan")])
).map(lambda r: (r[0], r[1], min(r[1] - 1, r[2]), r[3]))


@given(st.lists(row, max_size=60), st.integers(1, 300), st.integers(0, 3))
@settings(max_examples=150)
def test_every_record_is_used_once_or_left_out_with_a_reason(
    rows: list[tuple[str, int, int, float]], budget: int, seed: int
) -> None:
    supply = records(rows)
    plan = plan_stages(supply, stages(budget, [64, 96, 128]), seed)
    left = [index for index, _ in plan.left_out]
    assert sorted(used(plan) + left) == list(range(len(rows)))
    reasons = dict(plan.left_out)
    assert all((reasons.get(i) == "too_long") == (rows[i][1] > 128) for i in range(len(rows)))
    for stage in plan.stages:
        filled = [sum(rows[i][1] for i in r) for r in stage.rows]
        assert all(0 < tokens <= stage.capacity for tokens in filled)
        assert len(stage.rows) <= 1 or sum(filled) >= 0.95 * stage.capacity * len(stage.rows)
        assert stage.report["trained_tokens"] == sum(rows[i][2] for r in stage.rows for i in r)
    again = plan_stages(supply, stages(budget, [64, 96, 128]), seed)
    assert [s.rows for s in again.stages] == [s.rows for s in plan.stages]


@pytest.mark.parametrize(
    ("family", "tools", "message", "kind"),
    [
        ("reasoning", "[]", Message("assistant"), "reasoning"),
        ("repair", "[]", Message("assistant"), "agentic"),
        ("recorded", "[]", Message("assistant"), "general"),
        ("recorded", '[{"name": "x"}]', Message("assistant"), "agentic"),
        ("recorded", "[]", Message("tool"), "agentic"),
        ("recorded", "", Message("assistant", tool_calls=[ToolCall("c", "n", "{}")]), "agentic"),
    ],
)
def test_kind_of(family: str, tools: str, message: Message, kind: str) -> None:
    assert kind_of(Trajectory("0", "s", family, [message], tools=tools)) == kind


def test_replay_takes_part_of_the_budget_from_earlier_stages_in_rows_of_its_own() -> None:
    supply = drawn(0, PLENTY)
    plain = stages(400_000)
    mixed = [plain[0], plain[1].model_copy(update={"replay": 0.3}), plain[2]]
    plan = plan_stages(supply, mixed, 1)
    assert not any(plan.stages[0].replayed) and not any(plan.stages[2].replayed)
    second = plan.stages[1]
    again = [i for row, repeated in zip(second.rows, second.replayed, strict=True) if repeated for i in row]
    fresh = [i for row, repeated in zip(second.rows, second.replayed, strict=True) if not repeated for i in row]
    first = {i for row in plan.stages[0].rows for i in row}
    assert again and set(again) <= first and len(set(again)) == len(again)
    assert not first & set(fresh)
    replayed = second.report["replayed"]
    assert replayed["trained_tokens"] == int(supply.trained[again].sum())
    assert 60_000 < replayed["trained_tokens"] <= 1.01 * 120_000
    assert second.report["trained_tokens"] == int(supply.trained[again].sum() + supply.trained[fresh].sum())
    assert second.report["fill"] >= 0.95
    once = [i for s in plan.stages for row, r in zip(s.rows, s.replayed, strict=True) if not r for i in row]
    assert sorted(once + [index for index, _ in plan.left_out]) == list(range(len(supply)))


def test_the_first_stage_has_nothing_to_replay() -> None:
    rows = [("general", 60, 30, 5.0)] * 80
    stage = SftStage(context_tokens=480, trained_tokens=1_200, replay=0.5)
    plan = plan_stages(records(rows), [stage], 1)
    assert plan.stages[0].replayed == [False] * len(plan.stages[0].rows)
    assert plan.stages[0].report["trained_tokens"] == 1_200
