"""InterCode histories: a map of {query, turn_history: {actions, observations, rewards, valid_action[, thoughts]}}.

An action is a call of the environment's one tool ("bash", "sql", …) with the action text as it is; valid_action is
the true per-step label. Files whose lists do not line up (plan-solve-refine) are set aside with that reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.parts import json_text, mapping
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory

__all__ = ["InterCode"]


class InterCode:
    """One run of the map."""

    name = "intercode"

    def matches(self, value: Any) -> float:
        """`turn_history` beside `query`; or the plan-solve-refine wrapper {meta, logs}, which is refused by name."""
        if not isinstance(value, dict):
            return 0.0
        if isinstance(value.get("turn_history"), dict):
            return 0.95
        logs = value.get("logs")
        first = next(iter(logs.values()), None) if isinstance(logs, dict) else None
        return 0.9 if isinstance(first, dict) and "turn_history" in first else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a run."""
        if "turn_history" not in value:
            problem = "plan-solve-refine logs (meta, logs): steps and actions do not pair up, so turns cannot be told"
            raise RecordError("logs", problem, value["logs"])
        history = value["turn_history"]
        actions, observations = history.get("actions"), history.get("observations")
        if not isinstance(actions, list) or not isinstance(observations, list):
            raise RecordError("turn_history.actions", "actions and observations must be lists", actions)
        columns = {name: history.get(name) for name in ("observations", "rewards", "valid_action", "thoughts")}
        for name, column in columns.items():
            if column is not None and (not isinstance(column, list) or len(column) != len(actions)):
                raise RecordError(f"turn_history.{name}", f"must be as long as actions ({len(actions)})", column)
        environment = str(value.get("environment") or "environment").removeprefix("ic_")
        messages = [Message(role="user", content=str(value.get("query") or ""))]
        for index, action in enumerate(actions):
            messages.extend(_step(index, str(action), columns, environment))
        summary = mapping(value.get("summary"))
        reward = summary.get("max_reward")
        graded = Outcome(reward == 1, float(reward), "max_reward") if isinstance(reward, int | float) else Outcome()
        notes = Notes()
        notes.add(f"actions read as calls of the tool '{environment}', observations as their results")
        task_id = value.get("task_id")
        dataset = str(value.get("dataset") or environment).rpartition("/")[2].removesuffix(".json")
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(id=f"{dataset}/{task_id}" if task_id is not None else None),
            tools=_tools(environment) if actions else "[]",
            outcome=graded,
            extra={"hardness": value.get("hardness"), "turns_max": summary.get("turns_max")},
        )


def _step(index: int, action: str, columns: Mapping[str, Any], environment: str) -> Iterator[Message]:
    identity = f"call_{index}"
    thoughts, valid = columns["thoughts"], columns["valid_action"]
    yield Message(
        role="assistant",
        content=str(thoughts[index] or "") if thoughts else "",
        tool_calls=[ToolCall(identity, environment, json_text({"action": action}))],
    )
    result = Message(role="tool", content=_text(columns["observations"][index]), tool_call_id=identity)
    if valid is not None and isinstance(valid[index], bool):
        result.error = not valid[index]
        result.signal = None if valid[index] else "valid_action=false"
    yield result


def _text(observation: Any) -> str:
    return observation if isinstance(observation, str) else json_text(observation)


def _tools(environment: str) -> str:
    """The environment's one tool: it takes the action text."""
    schema = {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]}
    function = {
        "name": environment,
        "description": f"Run one action in the {environment} environment.",
        "parameters": schema,
    }
    return json_text([{"type": "function", "function": function}])
