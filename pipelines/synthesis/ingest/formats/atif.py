"""ATIF (Agent Trajectory Interchange Format, Harbor) v1.0 to v1.8.

Read here without a model class: the published `atif` package validates 1.8 strictly (extra keys refused), which older
and hand-made files fail; a reader only needs the fields below. Steps with `is_copied_context` are author "copied",
agent steps with `llm_call_count` 0 author "harness".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import source_mask
from pipelines.synthesis.ingest.parts import content_text, json_text, mapping, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, ToolCall, Trajectory

__all__ = ["Atif"]


class Atif:
    """{schema_version, agent, steps}."""

    name = "atif"

    def matches(self, value: Any) -> float:
        """`schema_version` ATIF-…, or steps with step_id and source beside an agent."""
        if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
            return 0.0
        if str(value.get("schema_version", "")).upper().startswith("ATIF"):
            return 1.0
        first = value["steps"][0] if value["steps"] else None
        shaped = isinstance(first, dict) and "step_id" in first and "source" in first
        return 0.9 if shaped and "agent" in value else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """The run, then the sub-agent runs that the file embeds."""
        yield self._one(value, place)
        for index, inner in enumerate(value.get("subagent_trajectories") or []):
            inside = place.inside(f"subagent_trajectories[{index}]")
            try:
                if self.matches(inner) == 0:
                    raise RecordError("", "not an ATIF trajectory", inner)
                yield from self.read(inner, inside)
            except RecordError as error:
                yield error.at(inside, self.name)

    def _one(self, value: Mapping[str, Any], place: Place) -> Trajectory:
        notes = Notes()
        messages: list[Message] = []
        for index, step in enumerate(value["steps"]):
            field = f"steps[{index}]"
            if not isinstance(step, dict):
                raise RecordError(field, "a step must be an object", step)
            messages.extend(_step(step, notes, field))
        agent = mapping(value.get("agent"))
        if value.get("continued_trajectory_ref"):
            notes.add("goes on in another file (continued_trajectory_ref)")
        reward = mapping(value.get("extra")).get("reward")
        graded = Outcome()
        if isinstance(reward, int | float) and not isinstance(reward, bool):
            graded = Outcome(reward >= 1, float(reward), "reward")
        return assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            tools=tools_text(agent.get("tool_definitions"), notes),
            outcome=graded,
            extra={
                "session": value.get("session_id"),
                "trajectory": value.get("trajectory_id"),
                "agent": agent.get("name"),
                "model": agent.get("model_name"),
                "continued_in": value.get("continued_trajectory_ref"),
                "schema": value.get("schema_version"),
            },
        )


def _step(step: Mapping[str, Any], notes: Notes, field: str) -> list[Message]:
    source = step.get("source")
    text = content_text(step.get("message"), notes, f"{field}.message")
    if source not in ("system", "user", "agent"):
        raise RecordError(f"{field}.source", "must be system, user or agent", source)
    copied = step.get("is_copied_context") is True
    message = Message(role="assistant" if source == "agent" else source, content=text)
    if source == "agent":
        _agent(message, step, notes, field)
    if copied:
        message.author = "copied"
        notes.add("steps copied from another trajectory (is_copied_context)")
    results = mapping(step.get("observation")).get("results") or []
    found = [message]
    for index, result in enumerate(results):
        if not isinstance(result, dict):
            raise RecordError(f"{field}.observation.results[{index}]", "a result must be an object", result)
        found.append(_result(result, message, len(results), notes, f"{field}.observation.results[{index}]"))
    if source == "system" and not text and len(found) == 1:
        return []
    return found


def _agent(message: Message, step: Mapping[str, Any], notes: Notes, field: str) -> None:
    reasoning = step.get("reasoning_content")
    message.reasoning = reasoning if isinstance(reasoning, str) and reasoning else None
    for index, call in enumerate(step.get("tool_calls") or []):
        if not isinstance(call, dict) or not isinstance(call.get("function_name"), str):
            raise RecordError(f"{field}.tool_calls[{index}]", "a call must have a function_name", call)
        identity = str(call.get("tool_call_id") or "")
        message.tool_calls.append(ToolCall(identity, call["function_name"], json_text(call.get("arguments", {}))))
    if step.get("llm_call_count") == 0:
        message.author = "harness"
        notes.add("agent steps that no model wrote (llm_call_count 0)")
    extra = step.get("extra")
    if isinstance(extra, dict):
        message.train, message.weight = source_mask(extra)
        reason = extra.get("stop_reason") or extra.get("finish_reason")
        message.stop = reason if isinstance(reason, str) else None
        if isinstance(extra.get("author"), str):
            message.author = extra["author"]


def _result(result: Mapping[str, Any], step: Message, many: int, notes: Notes, field: str) -> Message:
    text = content_text(result.get("content"), notes, f"{field}.content")
    references = result.get("subagent_trajectory_ref")
    if references:
        notes.add("results that are the runs of sub-agents, in other records")
    identity = result.get("source_call_id")
    if not identity and len(step.tool_calls) == 1 and many == 1:
        identity = step.tool_calls[0].id
        notes.add("results without a call id bound to the only call of their step")
    extra = mapping(result.get("extra"))
    flag, named = extra.get("is_error"), extra.get("signal")
    error = flag if isinstance(flag, bool) else None
    signal = named if isinstance(named, str) else "is_error" if error else None
    if not step.tool_calls:
        return Message(role="user", content=text, name="observation", error=error, signal=signal)
    return Message(
        role="tool", content=text, tool_call_id=str(identity) if identity else None, error=error, signal=signal
    )
