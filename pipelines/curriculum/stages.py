"""Which trajectory is trained in which stage, and in which row: pure planning over lengths and counts.

Shares are of trained tokens (after masking) by kind of family, as the Nanbeige4.2 report states its curriculum
(arXiv 2607.22083: 64K 82.7/11.6/5.7, 128K 47.8/22.7/29.5, 256K 22.4/8.7/68.9 % reasoning/general/agentic).

Rules, in the order in which they win:
1. No record is cut; each is in one stage at most (rows of `replay` come on top). Longer than the last stage:
   `too_long`. Nothing trained: `nothing_to_train`. Left at the end: `over_budget` (no stage's budget or share had room
   for it), or `no_full_row` where there was room but no row could be filled with it.
2. Rows are whole: at least 95 % full, except one row of a stage whose supply does not reach further.
3. Every stage that can have a first row gets one before any stage gets its second, and a stage's first row starts
   with a record that no earlier stage can hold, if there is one.
4. Where a kind is scarce, the stages that want it get the same part of what they want. A kind of which a stage could
   hold no record at all is left out of its shares, and the others are scaled up.
5. Short before long: records are taken by difficulty, then length; in the last stage, and for the first row of every
   later stage, the other way round. A stage's `order` may say otherwise for all but that
   first row. Records that earlier stages cannot hold come first in theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.curriculum.pack import order_rows, pack
from pipelines.curriculum.rows import MIN_FILL, Records, RowBuilder, StageState
from schemas.recipe import SftStage
from schemas.trajectory import Trajectory

__all__ = ["KINDS", "Plan", "Records", "StagePlan", "fair_shares", "kind_of", "plan_stages", "records_of"]

KINDS = ("reasoning", "general", "agentic")
AGENTIC_FAMILIES = frozenset({"repair", "office", "search", "terminal"})
UNKNOWN_DIFFICULTY = 5.5  # the middle of the scale 1 to 10: recorded runs do not say how hard they were
SLACK = 0.01  # how far a stage's last row may pass its budget of trained tokens


@dataclass(slots=True)
class StagePlan:
    """One stage. `rows` are lists of record indices in training order; `replayed` says which rows repeat records."""

    capacity: int
    rows: list[list[int]]
    replayed: list[bool]
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """All stages, and for each record that is in none its index and the reason."""

    stages: list[StagePlan]
    left_out: list[tuple[int, str]]


def records_of(columns: Mapping[str, Sequence[Any]]) -> tuple[Records, list[int]]:
    """Records of tokenized trajectories (columns of TRAJECTORIES_SCHEMA) sorted by id, and the row of each.

    Rows with a problem are left out: they have no tokens.
    """
    ids: Sequence[str] = columns.get("id", [])
    problems = columns.get("problem", [])
    order = sorted((i for i in range(len(ids)) if problems[i] is None), key=lambda i: (ids[i], i))
    records = Records(
        ids=[ids[i] for i in order],
        kinds=[columns["kind"][i] for i in order],
        lengths=np.array([columns["tokens"][i] for i in order], dtype=np.int64),
        trained=np.array([columns["trained"][i] for i in order], dtype=np.int64),
        difficulty=np.array([columns["difficulty"][i] for i in order], dtype=np.float64),
    )
    return records, order


def kind_of(trajectory: Trajectory) -> str:
    """The kind that a trajectory counts as: reasoning, agentic (a tool family, tools, calls or results) or general."""
    if trajectory.family == "reasoning":
        return "reasoning"
    if trajectory.family in AGENTIC_FAMILIES or trajectory.tools.strip() not in ("", "[]", "null"):
        return "agentic"
    uses_tools = any(message.tool_calls or message.role == "tool" for message in trajectory.messages)
    return "agentic" if uses_tools else "general"


def plan_stages(records: Records, stages: Sequence[SftStage], seed: int, *, cost_window: int = 1) -> Plan:
    """Plan all SFT stages. Deterministic; memory and time grow with the number of records (about 20 µs each)."""
    longest = max((stage.context_tokens for stage in stages), default=0)
    too_long = records.lengths > longest
    useless = ~too_long & (records.trained == 0)
    left_out = [(int(i), "too_long") for i in np.flatnonzero(too_long)]
    left_out += [(int(i), "nothing_to_train") for i in np.flatnonzero(useless)]
    states = [
        StageState(n, stage.context_tokens, _fresh_budget(n, stage), _present_shares(records, stage))
        for n, stage in enumerate(stages)
    ]
    metered = [bool(stage.shares) for stage in stages]
    builder = RowBuilder(records, np.flatnonzero(~too_long & ~useless).tolist(), KINDS)
    _choose_rows(builder, states, metered, [stage.order for stage in stages])
    planned = []
    for state, stage in zip(states, stages, strict=True):
        again = _replay(records, states, stage, state.number, metered)
        planned.append(_finish(records, state, again, stage, [seed, state.number], cost_window))
    for index in (i for i in range(len(records)) if builder.free[i]):
        stops = {state.stopped_by for state in states if records.lengths[index] <= state.capacity}
        left_out.append((index, "over_budget" if "budget" in stops else "no_full_row"))
    return Plan(planned, sorted(left_out))


def _fresh_budget(number: int, stage: SftStage) -> int:
    """Trained tokens of records that no earlier stage has; the first stage has nothing to replay."""
    return round((1 - stage.replay) * stage.trained_tokens) if number else stage.trained_tokens


def _present_shares(records: Records, stage: SftStage) -> dict[str, float]:
    """The shares of a stage over the kinds of which it could hold a record, summing to 1 (or none at all)."""
    usable = (records.lengths <= stage.context_tokens) & (records.trained > 0)
    present = {records.kinds[i] for i in np.flatnonzero(usable).tolist()}
    shares: dict[str, float] = {str(k): v for k, v in stage.shares.items()} or dict.fromkeys(KINDS, 1 / len(KINDS))
    total = sum(share for kind, share in shares.items() if kind in present)
    return {kind: share / total for kind, share in shares.items() if kind in present and share > 0}


def _choose_rows(
    builder: RowBuilder, states: list[StageState], metered: list[bool], wanted: Sequence[str | None]
) -> None:
    """Fill the stages' rows; `wanted` is the order that the recipe asks of each (None: rule 5)."""
    last = len(states) - 1
    hardest_first = [order == "hard_first" if order else 0 < n == last for n, order in enumerate(wanted)]
    orders = [_preferences(builder.records, states, n, hardest=hard) for n, hard in enumerate(hardest_first)]
    passed = [0, *(state.capacity for state in states[:-1])]
    for state in states:
        _reserve_anchor(builder, state, orders[state.number], passed[state.number])
    for state in reversed(states):  # rule 3: a first row for everybody, the hardest to fill first
        hardest = _preferences(builder.records, states, state.number, hardest=True)
        builder.start(hardest if state.number else orders[0], passed[state.number])
        quotas = _quotas(builder, states, state.number, 0, metered)
        builder.add_row(state, quotas, (1 + SLACK) * state.budget)
    for fair in (True, False):  # rule 4, then whatever the budgets still allow
        for state in states:
            builder.start(orders[state.number], passed[state.number])
            state.rejected.clear()
            quotas = _quotas(builder, states, state.number, state.number if fair else None, metered)
            while builder.add_row(state, quotas, (1 + SLACK) * (sum(quotas.values()) if fair else state.budget)):
                pass
    for state in states:
        if not state.rows:
            builder.start(orders[state.number], passed[state.number])
            builder.add_row(state, _quotas(builder, states, state.number, None, metered), state.budget, short=True)


def _reserve_anchor(builder: RowBuilder, state: StageState, order: Mapping[str, list[int]], passed: int) -> None:
    """Set one long record aside for the stage's first row, of the kind with the largest share that has one."""
    if not state.number:
        return
    for kind in sorted(KINDS, key=lambda k: (-state.shares.get(k, 0), k)):
        if state.shares.get(kind, 0) > 0 and order[kind] and builder.records.lengths[order[kind][0]] > passed:
            state.anchor = order[kind][0]
            builder.reserve(state.anchor)
            return


def _preferences(records: Records, states: Sequence[StageState], number: int, *, hardest: bool) -> dict[str, list[int]]:
    """Record indices by kind in the order that a stage takes them (rule 5), the hardest or the easiest first."""
    capacity = states[number].capacity
    passed = states[number - 1].capacity if number else 0
    difficulty = np.where(np.isnan(records.difficulty), UNKNOWN_DIFFICULTY, records.difficulty)
    sign = -1 if hardest else 1
    ranked = np.lexsort(
        (np.arange(len(records)), sign * records.lengths, sign * difficulty, records.lengths <= passed)
    ).tolist()
    order: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for index in ranked:
        if records.lengths[index] <= capacity and records.trained[index] > 0:
            order[records.kinds[index]].append(index)
    return order


def _quotas(
    builder: RowBuilder, states: Sequence[StageState], number: int, first: int | None, metered: list[bool]
) -> dict[str, float]:
    """Trained tokens that stage `number` may hold of each kind.

    Shared fairly with the stages from `first` on (None: whatever there is); without shares in the recipe, in proportion
    to the supply.
    """
    state = states[number]
    if metered[number]:
        if first is not None:
            return _fair_quotas(builder, states, number, first)
        return {kind: share * state.budget for kind, share in state.shares.items()}
    supply = {kind: builder.supply(kind, state.capacity) + state.taken.get(kind, 0) for kind in KINDS}
    total = sum(supply.values())
    return {kind: state.budget * amount / total for kind, amount in supply.items()} if total else {}


def fair_shares(wants: Sequence[float], supply: Sequence[float]) -> list[float]:
    """What part (0 to 1) of its want each stage gets when scarcity is shared evenly (max-min).

    `supply[j]` is what there is for the stages up to j together, never falling: stage s can use records of every length
    class up to s. So the stages n…j can all have the part (supply[j] - used before) / (wants of n…j); the tightest j is
    settled first, then the stages after it with what is left.
    """
    parts = [1.0] * len(wants)
    start, used = 0, 0.0
    while start < len(wants):
        tightest, at, wanted = 1.0, len(wants) - 1, 0.0
        for j in range(start, len(wants)):
            wanted += wants[j]
            part = max(0.0, supply[j] - used) / wanted if wanted > 0 else 1.0
            if part < tightest:
                tightest, at = part, j
        for j in range(start, at + 1):
            parts[j] = tightest
            used += tightest * wants[j]
        start = at + 1
    return parts


def _fair_quotas(builder: RowBuilder, states: Sequence[StageState], number: int, first: int) -> dict[str, float]:
    """Trained tokens that a stage may hold of each kind when it shares what is left with the stages from `first` on."""
    quotas = {}
    sharing = states[first:]
    for kind, share in states[number].shares.items():
        goals = [state.shares.get(kind, 0.0) * state.budget for state in sharing]
        taken = [state.taken.get(kind, 0) for state in sharing]
        wants = [max(0.0, goal - had) for goal, had in zip(goals, taken, strict=True)]
        supply = [float(builder.supply(kind, state.capacity)) for state in sharing]
        part = fair_shares(wants, supply)[number - first]
        quotas[kind] = states[number].taken.get(kind, 0) + part * wants[number - first] if share else 0.0
    return quotas


def _replay(
    records: Records, states: Sequence[StageState], stage: SftStage, number: int, metered: list[bool]
) -> StageState:
    """Whole rows of records of earlier stages for a stage's `replay`: at most the budget, but one row if any."""
    budget = stage.trained_tokens - states[number].budget
    again = StageState(number, stage.context_tokens, budget, states[number].shares)
    earlier = sorted(i for state in states[:number] for row in state.rows for i in row)
    if budget and earlier:
        builder = RowBuilder(records, earlier, KINDS)
        builder.start(_preferences(records, states, number, hardest=False), stage.context_tokens)
        quotas = _quotas(builder, [again], 0, None, metered[number : number + 1])
        while builder.add_row(again, quotas, (1 + SLACK) * budget):
            pass
    return again


def _packed(records: Records, state: StageState) -> list[list[int]]:
    """Pack what was chosen; the rows as built are kept where best fit would need more of them."""
    chosen = sorted(index for row in state.rows for index in row)
    if chosen:
        packing = pack(records.lengths[chosen], state.capacity)
        if packing.rows <= len(state.rows):
            return [[chosen[i] for i in packing.row(n)] for n in range(packing.rows)]
    return [sorted(row, key=lambda i: (-records.lengths[i], i)) for row in state.rows]


def _finish(
    records: Records, state: StageState, again: StageState, stage: SftStage, seed: list[int], cost_window: int
) -> StagePlan:
    """Rows in training order, and what the report says of them."""
    fresh, repeated = _packed(records, state), _packed(records, again)
    rows = fresh + repeated
    lengths = [records.lengths[row] for row in rows]
    squares = np.array([int((length**2).sum()) for length in lengths], dtype=np.int64)
    order = order_rows(squares, seed, window=cost_window).tolist()
    tokens = [int(length.sum()) for length in lengths]
    report: dict[str, Any] = {
        "rows": len(rows),
        "segments": sum(len(row) for row in rows),
        "tokens": sum(tokens),
        "trained_tokens": state.trained + again.trained,
        "budget_trained_tokens": stage.trained_tokens,
        "fill": sum(tokens) / (len(rows) * state.capacity) if rows else None,
        "short_rows": sum(count < MIN_FILL * state.capacity for count in tokens),
        "longest_segment": max((int(length.max()) for length in lengths), default=0),
        "sum_of_squares": int(squares.sum()),
        **_shares_report(state, again, stage),
    }
    if stage.replay:
        report["replayed"] = {
            "rows": len(repeated),
            "segments": sum(len(row) for row in repeated),
            "tokens": sum(tokens[len(fresh) :]),
            "trained_tokens": again.trained,
        }
    return StagePlan(state.capacity, [rows[n] for n in order], [n >= len(fresh) for n in order], report)


def _shares_report(state: StageState, again: StageState, stage: SftStage) -> dict[str, Any]:
    """Shares wanted and reached, in trained tokens, and what each kind lacks of its part of the budget."""
    taken = {kind: state.taken.get(kind, 0) + again.taken.get(kind, 0) for kind in KINDS}
    total = sum(taken.values())
    wanted: dict[str, float] = {str(kind): share for kind, share in stage.shares.items()}
    kinds = sorted(set(wanted) | {kind for kind, tokens in taken.items() if tokens})
    return {
        "kinds_without_supply": sorted(kind for kind, share in wanted.items() if share and kind not in state.shares),
        "shares": {
            kind: {
                "wanted": wanted.get(kind, 0.0) if wanted else None,
                "reached": taken[kind] / total if total else 0.0,
                "trained_tokens": taken[kind],
                "shortfall": max(0, round(wanted.get(kind, 0) * stage.trained_tokens) - taken[kind]),
            }
            for kind in kinds
        },
    }
