"""Inspect evaluation logs: {eval, samples: [{messages, scores, …}]} as JSON, or one sample of a .eval zip.

`attachment://` references are resolved. Errors of tool messages are structured ({type, message}). The score "C" or 1
is success, "I" or 0 is not; other values are only kept as the reward when they are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.parts import arguments_text, canonical_role, content_text, mapping, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory

__all__ = ["InspectLog"]

_ATTACHMENT = "attachment://"


class InspectLog:
    """A log, or one sample of it."""

    name = "inspect"

    def matches(self, value: Any) -> float:
        """`eval` and `samples`; or a sample: `messages` and `scores` with `epoch`."""
        if not isinstance(value, dict):
            return 0.0
        if isinstance(value.get("eval"), dict) and ("samples" in value or "plan" in value):
            return 0.95
        sample = isinstance(value.get("messages"), list) and "epoch" in value
        return 0.9 if sample and ("scores" in value or "store" in value) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a sample; one that cannot be read is set aside, the others go on."""
        if "eval" not in value:
            yield self._sample(value, {}, place)
            return
        samples = value.get("samples")
        if not samples:
            raise RecordError("samples", "the log holds no samples (it was written without them)", value.get("status"))
        for index, sample in enumerate(samples):
            inside = place.inside(f"samples[{index}]")
            try:
                yield self._sample(sample, value["eval"], inside)
            except RecordError as error:
                yield error.at(inside, self.name)

    def _sample(self, sample: Any, header: Mapping[str, Any], place: Place) -> Trajectory:
        if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
            raise RecordError("messages", "a sample must hold a list of messages", sample)
        notes = Notes()
        attached = _attachments(sample)
        messages = [
            _message(_resolve(raw, attached), notes, f"messages[{index}]")
            for index, raw in enumerate(sample["messages"])
        ]
        choices = mapping(sample.get("output")).get("choices") or []
        if choices and isinstance(choices[0], dict) and messages and messages[-1].role == "assistant":
            messages[-1].stop = choices[0].get("stop_reason")
        name = header.get("task")
        identity = str(sample.get("id")) if sample.get("id") is not None else None
        return assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(id=f"{name}/{identity}" if name and identity else identity),
            tools=tools_text(_tools(sample, attached), notes),
            outcome=_outcome(sample.get("scores")),
            extra={
                "epoch": sample.get("epoch"),
                "model": header.get("model"),
                "limit": mapping(sample.get("limit")).get("type"),
                "error": mapping(sample.get("error")).get("message"),
            },
        )


def _attachments(sample: Mapping[str, Any]) -> Mapping[str, str]:
    found = sample.get("attachments")
    if isinstance(found, dict):
        return found
    transcript = sample.get("transcript")
    content = transcript.get("content") if isinstance(transcript, dict) else None
    return content if isinstance(content, dict) else {}


def _resolve(value: Any, attached: Mapping[str, str]) -> Any:
    """`value` with every string that is an attachment reference replaced by what it names."""
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHMENT), value) if value.startswith(_ATTACHMENT) else value
    if isinstance(value, list):
        return [_resolve(item, attached) for item in value]
    if isinstance(value, dict):
        return {key: _resolve(item, attached) for key, item in value.items()}
    return value


def _message(raw: Any, notes: Notes, field: str) -> Message:
    if not isinstance(raw, dict):
        raise RecordError(field, "a message must be an object", raw)
    role = canonical_role(raw.get("role"), f"{field}.role")
    content, reasoning = raw.get("content"), None
    if isinstance(content, list):
        thoughts = [part for part in content if isinstance(part, dict) and part.get("type") == "reasoning"]
        content = [part for part in content if part not in thoughts]
        reasoning = "\n\n".join(str(part.get("reasoning") or "") for part in thoughts) or None
    message = Message(role=role, content=content_text(content, notes, f"{field}.content"), reasoning=reasoning)
    if role == "assistant":
        for index, call in enumerate(raw.get("tool_calls") or []):
            message.tool_calls.append(_call(call, notes, f"{field}.tool_calls[{index}]"))
        if raw.get("source") == "input":
            message.author = "demo"
            notes.add("assistant turns given in the sample's input, not generated")
    elif role == "tool":
        message.tool_call_id = str(raw["tool_call_id"]) if raw.get("tool_call_id") else None
        message.name = raw.get("function") if isinstance(raw.get("function"), str) else None
        error = raw.get("error")
        if isinstance(error, dict):
            message.error, message.signal = True, f"tool_error={error.get('type')}"
            if not message.content:
                message.content = str(error.get("message") or "")
    return message


def _call(call: Any, notes: Notes, field: str) -> ToolCall:
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        raise RecordError(f"{field}.function", "a call must name its function", call)
    if call.get("parse_error"):
        notes.add("calls whose arguments the source could not parse (parse_error)")
    return ToolCall(str(call.get("id") or ""), call["function"], arguments_text(call.get("arguments"), notes))


def _tools(sample: Mapping[str, Any], attached: Mapping[str, str]) -> Any:
    """The tools of the last model event (older logs keep events under `transcript`)."""
    events = sample.get("events")
    if not isinstance(events, list):
        transcript = sample.get("transcript")
        events = transcript.get("events") if isinstance(transcript, dict) else None
    for event in reversed(events or []):
        if isinstance(event, dict) and event.get("event") == "model" and event.get("tools"):
            return _resolve(event["tools"], attached)
    return None


def _outcome(scores: Any) -> Outcome:
    """The first score."""
    if not isinstance(scores, dict) or not scores:
        return Outcome()
    name, score = next(iter(scores.items()))
    value = score.get("value") if isinstance(score, dict) else score
    if isinstance(value, bool):
        return Outcome(value, float(value), str(name))
    if isinstance(value, int | float):
        return Outcome(True if value == 1 else False if value == 0 else None, float(value), str(name))
    return Outcome({"C": True, "I": False}.get(str(value)), None, str(name))
