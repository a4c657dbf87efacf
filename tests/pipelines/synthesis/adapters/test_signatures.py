"""Tool schemas as typed functions, and the TRL environment as far as it needs no TRL."""

from __future__ import annotations

import inspect
import json
from typing import Any, Literal

import pytest

from pipelines.synthesis.adapters.signatures import tool_function, tool_union
from pipelines.synthesis.adapters.trl import FamilyEnvironment, environment_class, task_rows
from pipelines.synthesis.environments.base import TaskSpec
from pipelines.synthesis.ranges import task_seed
from schemas.errors import UsageError

TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book a table.",
        "parameters": {
            "type": "object",
            "properties": {
                "notes": {"type": "array", "items": {"type": "string"}},
                "seats": {"type": "integer", "description": "how many people"},
                "room": {"enum": ["blue", "red"]},
            },
            "required": ["seats", "room"],
        },
    },
}


def test_a_schema_becomes_a_typed_signature_with_a_docstring() -> None:
    seen: list[dict[str, Any]] = []

    def run(**arguments: Any) -> str:
        seen.append(arguments)
        return "booked"

    book = tool_function(TOOL, run)
    signature = inspect.signature(book)
    assert [*signature.parameters] == ["seats", "room", "notes"]
    assert book.__annotations__ == {
        "seats": int,
        "room": Literal["blue", "red"],
        "notes": list[str] | None,
        "return": str,
    }
    assert signature.parameters["notes"].default is None
    assert signature.parameters["seats"].default is inspect.Parameter.empty
    assert (book.__name__, (book.__doc__ or "").split("\n")[0]) == ("book", "Book a table.")
    assert "    seats: how many people" in (book.__doc__ or "")
    assert book(seats=2, room="red", notes=None) == "booked"
    assert book(places=2) == "booked"
    assert seen == [{"seats": 2, "room": "red"}, {"places": 2}]


def test_tools_of_several_tasks_are_joined_by_name() -> None:
    other = {"type": "function", "function": {"name": "pay", "description": "", "parameters": {}}}
    assert [t["function"]["name"] for t in tool_union([[TOOL], [], [other, TOOL]])] == ["book", "pay"]


def rows() -> list[dict[str, Any]]:
    return task_rows("reasoning", 12, seed=3, difficulty=(1, 2))


def test_rows_are_the_tasks_of_a_recipe_of_that_seed() -> None:
    made = rows()
    assert [row["prompt"][-1] for row in made] == [{"role": "user", "content": ""}] * 12
    tasks = [TaskSpec.from_json(row["task"]) for row in made]
    assert [task.difficulty for task in tasks][::11] == [1, 2]
    assert tasks[4].seed == task_seed(3, 0, 4)


def test_a_rollout_is_rewarded_by_the_families_own_verdict() -> None:
    made = rows()
    cls = environment_class("reasoning", made)
    public = {n for n, _ in inspect.getmembers(cls, inspect.isfunction) if not n.startswith("_")}
    assert public == {"reset", "get_reward", "final_answer", "calculator", "run_code"}
    environment = cls()
    for row in made:
        task = TaskSpec.from_json(row["task"])
        assert environment.reset(**row) == task.instruction
        if task.data["mode"] == "calculator":
            assert environment.calculator(expression="2 * 21") == "42"  # type: ignore[attr-defined]
            assert environment.calculator(formula="1").startswith("Error: calculator: unknown")  # type: ignore[attr-defined]
        else:
            assert "no tool 'calculator'" in environment.calculator(expression="1")  # type: ignore[attr-defined]
        right = "\n".join(f"Answer {n}: {text}" for n, text in enumerate(task.data["answers"], 1))
        environment.final_answer(text=right)  # type: ignore[attr-defined]
        assert environment.get_reward() == 1.0
        assert "was given" in environment.final_answer(text="Answer: 0")  # type: ignore[attr-defined]
        assert environment.get_reward() == 1.0
    environment.reset(**made[0])
    assert environment.get_reward() == 0.0
    assert isinstance(environment, FamilyEnvironment)


def test_rows_without_a_task_are_refused() -> None:
    with pytest.raises(UsageError, match="row 1: 'task'"):
        environment_class("reasoning", [rows()[0], {"task": json.dumps({"id": "x"})}])
    with pytest.raises(UsageError, match="poetry"):
        task_rows("poetry", 1)
