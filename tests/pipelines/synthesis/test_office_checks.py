"""Office verdicts: every kind passes when the work is done, and fails for one piece missing or one thing too many."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.synthesis.environments.answers import answers_of
from pipelines.synthesis.environments.base import TaskSpec, open_environment
from pipelines.synthesis.environments.office import OfficeEnvironment
from pipelines.synthesis.environments.offices.checks import final_state, judge
from pipelines.synthesis.environments.offices.documents import make_sheet, read_calendar, read_sheets
from pipelines.synthesis.environments.offices.plan import KINDS
from pipelines.synthesis.environments.offices.world import Atom, Builder, Final, Goal, Want, World
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.office import ACTS
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.trajectory import ToolCall

Done = tuple[TaskSpec, list[ToolCall], str]


@pytest.fixture(scope="module")
def environment() -> Iterator[OfficeEnvironment]:
    with open_environment("office") as opened:
        assert isinstance(opened, OfficeEnvironment)
        yield opened


@pytest.fixture(scope="module")
def solved(environment: OfficeEnvironment) -> dict[str, Done]:
    """Kind: a task of that kind alone, the calls that solve it, the final answer."""
    found: dict[str, Done] = {}
    for seed in range(400):
        task = environment.generate(seed, 2.4)
        kind = task.data["kinds"][0]
        if len(task.data["kinds"]) == 1 and kind not in found and task.data["subgoals"] > 1:
            trajectory = rollout(environment, task, open_teacher("office", environment, task, 0.0, 0))
            calls = [call for message in trajectory.messages for call in message.tool_calls]
            found[kind] = (task, calls, trajectory.messages[-1].content)
        if len(found) == len(KINDS):
            break
    assert set(found) == set(KINDS)
    return found


def perform(environment: OfficeEnvironment, task: TaskSpec, calls: list[ToolCall], answer: str) -> None:
    environment.reset(task)
    for call in calls:
        assert environment.invoke(call).error is False
    environment.answer(answer)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_finished_work_passes(environment: OfficeEnvironment, solved: dict[str, Done], kind: str) -> None:
    perform(environment, *solved[kind])
    outcome = environment.verify()
    assert (outcome.success, outcome.reward) == (True, 1.0)
    assert "0 other changes" in str(outcome.verified_by)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_missing_sub_goal_fails(environment: OfficeEnvironment, solved: dict[str, Done], kind: str) -> None:
    task, calls, answer = solved[kind]
    last = max((n for n, call in enumerate(calls) if call.name in ACTS), default=-1)
    if kind == "answer":
        answer = "\n".join(answer.rstrip().split("\n")[:-1])
    elif kind in ("merge", "reconcile"):  # the file without one of its rows
        arguments = json.loads(calls[last].arguments)
        lines = arguments["content"].split("\n")
        del lines[1]
        arguments["content"] = "\n".join(lines)
        calls = [*calls[:last], ToolCall("c", calls[last].name, json.dumps(arguments)), *calls[last + 1 :]]
    elif kind == "sheet" and len(json.loads(calls[last].arguments)["cells"]) > 1:
        arguments = json.loads(calls[last].arguments)
        arguments["cells"].pop()
        calls = [*calls[:last], ToolCall("c", calls[last].name, json.dumps(arguments)), *calls[last + 1 :]]
    else:
        calls = [*calls[:last], *calls[last + 1 :]]
    perform(environment, task, calls, answer)
    verdict, outcome = environment.verdict(), environment.verify()
    assert outcome.success is False
    assert 0 < verdict.met < verdict.total
    assert outcome.reward == verdict.met / verdict.total - len(verdict.touched) / verdict.total < 1
    assert "; wrong: " in str(outcome.verified_by)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_foreign_change_fails(environment: OfficeEnvironment, solved: dict[str, Done], kind: str) -> None:
    task, calls, answer = solved[kind]
    assert environment._folder is None or environment._folder.root.exists()
    perform(environment, task, calls, answer)
    folder, world, database = environment._folder, environment._world, environment._database
    assert folder is not None
    assert world is not None
    files, _ = folder.tree()
    plain = sorted(path for path in files if path.endswith((".md", ".csv", ".eml", ".vcf", ".ics")))
    target = random.Random(kind).choice(plain)
    damage: list[tuple[str, bytes | None]] = [(target, None), (target, files[target] + b"x\n"), ("stray.md", b"x")]
    for path, data in damage:
        perform(environment, task, calls, answer)
        if data is None:
            (folder.root / path).unlink()
        else:
            (folder.root / path).write_bytes(data)
        assert environment.verify().success is False, (path, data)
    for name in world.tables:
        perform(environment, task, calls, answer)
        key = environment._database.rows()[name][0][0]
        first = world.tables[name].ddl.split("(")[1].split()[0]
        with pytest.raises(sqlite3.ProgrammingError):
            database._connection.execute("SELECT 1")  # an earlier reset's database is closed
        environment._database._connection.execute(f"DELETE FROM {name} WHERE {first} = ?", (key,))
        assert environment.verify().success is False
        verdict = environment.verdict()
        assert len(verdict.touched) + len(verdict.unmet) == 1
        assert name in (verdict.touched + verdict.unmet)[0]


def test_a_foreign_cell_and_a_foreign_event_are_seen_and_a_saved_copy_is_not(
    environment: OfficeEnvironment, solved: dict[str, Done]
) -> None:
    task, calls, answer = solved["sheet"]
    perform(environment, task, calls, answer)
    folder = environment._folder
    assert folder is not None
    path = next(path for path in folder.tree()[0] if path.endswith(".xlsx"))
    title, (grid, rows, columns) = next(iter(read_sheets(folder.bytes_of(path)).items()))
    table = [[grid.get(f"{'ABCDEFGHIJ'[c]}{r}") for c in range(columns)] for r in range(1, rows + 1)]
    folder.put(path, make_sheet({title: table}))
    assert environment.verify().success is True
    table[-1][0] = f"{table[-1][0]} x"
    folder.put(path, make_sheet({title: table}))
    assert environment.verdict().touched == [f"cell {path} {title} A{rows}"]
    folder.put(path, make_sheet({title: table, "More": [[1]]}))
    assert f"page {path} More" in environment.verdict().touched

    task, calls, answer = solved["clash"]
    perform(environment, task, calls, answer)
    path = next(path for path in folder.tree()[0] if path.endswith(".ics") and not path.endswith("meetings.ics"))
    event = read_calendar(folder.bytes_of(path))[1][0]
    moved = {"path": path, "uid": event.uid, "start": f"{event.start:%Y-%m-%d} 06:00"}
    assert environment.invoke(ToolCall("c", "move_event", json.dumps(moved))).error is False
    assert environment.verdict().touched == [f"event {path} {event.uid}"]


def test_a_reply_with_the_whole_list_in_it_answers_nothing(
    environment: OfficeEnvironment, solved: dict[str, Done]
) -> None:
    task, calls, answer = solved["reply"]
    last = max(n for n, call in enumerate(calls) if call.name == "draft_mail")
    environment.reset(task)
    asked = json.loads(calls[last].arguments)
    schema = environment.invoke(ToolCall("c", "query_database", json.dumps({"sql": "SELECT name FROM sqlite_master"})))
    table = schema.text.split("\n")[1]
    orders = environment.invoke(ToolCall("c", "query_database", json.dumps({"sql": f"SELECT * FROM {table}"}))).text
    dumped = {**asked, "body": asked["body"] + "\n" + orders}
    perform(environment, task, [*calls[:last], ToolCall("c", "draft_mail", json.dumps(dumped))], answer)
    assert "which nobody asked about" in str(environment.verify().verified_by)


def test_replies_must_go_to_the_right_person_once(environment: OfficeEnvironment, solved: dict[str, Done]) -> None:
    task, calls, answer = solved["reply"]
    last = max(n for n, call in enumerate(calls) if call.name == "draft_mail")
    arguments = json.loads(calls[last].arguments)
    for change, told in (
        ({"to": "other@elsewhere.example"}, "goes to other@elsewhere.example"),
        ({"body": "We do not know."}, "does not state"),
        ({"in_reply_to": None}, "0 drafts answer it"),
    ):
        wrong = {key: value for key, value in {**arguments, **change}.items() if value is not None}
        perform(environment, task, [*calls[:last], ToolCall("c", "draft_mail", json.dumps(wrong))], answer)
        assert environment.verify().success is False
        assert told in str(environment.verify().verified_by)
    perform(environment, task, [*calls, calls[last]], answer)
    assert "2 drafts answer it" in str(environment.verify().verified_by)


def test_a_paper_in_the_wrong_folder_costs_more_than_one_left(
    environment: OfficeEnvironment, solved: dict[str, Done]
) -> None:
    task, calls, answer = solved["file"]
    last = max(n for n, call in enumerate(calls) if call.name == "move_file")
    arguments = json.loads(calls[last].arguments)
    perform(environment, task, [*calls[:last], *calls[last + 1 :]], answer)
    left = environment.verify().reward
    wrong = ToolCall("c", "move_file", json.dumps({**arguments, "to": "astray." + arguments["to"].rsplit(".")[-1]}))
    perform(environment, task, [*calls[:last], wrong], answer)
    astray = environment.verify().reward
    assert left is not None
    assert astray is not None
    assert astray < left < 1


def test_every_job_weighs_the_same_whatever_its_size() -> None:
    def met(label: str, fine: bool) -> Want:
        return Want(label, test=lambda final: ("" if fine else "not done", set()))

    papers = Goal("file", "", tuple(met(f"paper {n}", n < 9) for n in range(9)), frozenset(), None)
    reply = Goal("reply", "", (met("reply", False),), frozenset(), None)
    world = World("", "", {}, frozenset(), {}, (papers, reply))
    verdict = judge(world, Final({}, [], {}))
    assert (verdict.met, verdict.total, verdict.reward) == (9, 10, 0.5)
    stray: dict[Atom, tuple[Any, Any]] = {("file", "stray.md"): (None, b"x"), ("folder", "stray"): (None, True)}
    assert judge(world, Final(stray, [], {})).reward == 0.5 - 2 / 10
    assert judge(World("", "", {}, frozenset(), {}, (reply,)), Final(stray, [], {})).reward == 0.0
    assert judge(World("", "", {}, frozenset(), {}, (papers,)), Final({}, [], {})).reward == 1.0


def test_an_empty_folder_left_behind_is_touched_and_one_on_the_way_to_a_paper_is_not(
    environment: OfficeEnvironment, solved: dict[str, Done]
) -> None:
    task, calls, answer = solved["file"]
    perform(environment, task, calls, answer)
    assert environment.verify().success is True  # folders that papers went to were made on the way
    perform(environment, task, [*calls, ToolCall("c", "make_folder", '{"path": "Old stuff/more"}')], answer)
    assert environment.verdict().touched == ["folder Old stuff", "folder Old stuff/more"]


def test_answer_lines_are_read_as_people_write_them() -> None:
    text = "Done.\n**Answer 1:** 12.50\n- Answer 2: Larch Labs Ltd\nanswer 3 = 7\nAnswer 3: 8\nThe Answer 4: no"
    assert answers_of(text) == {1: "12.50", 2: "Larch Labs Ltd", 3: "8"}
    assert answers_of("Answer: 5") == {1: "5"}


def test_every_kind_wants_something_that_is_not_yet_so() -> None:
    """A sub-goal that holds at the start would be a gift: none does, in any kind, at any size."""
    for kind, (maker, _) in KINDS.items():
        for seed in range(6):
            builder = Builder(random.Random(seed), 1 + seed)
            goal = maker(builder, 900.0 * (1 + seed))
            assert goal.wants, kind
            world = World("", "", builder.files, frozenset(builder.folders), builder.tables, (goal,))
            rows = {name: list(table.rows) for name, table in builder.tables.items()}
            final = final_state(world, dict(world.files), set(world.folders), rows, "")
            assert all(want.judge(final)[0] for want in goal.wants), kind
