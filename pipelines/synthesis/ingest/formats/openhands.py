"""OpenHands: evaluation output.jsonl, legacy resolver rows (events without ids), and replay event lists.

An action's call text comes from the model response stored with it (`tool_call_metadata`); several actions of one
response are one turn. Observations link by `cause` (`source: agent` says nothing). Events without metadata are
paired by adjacency and their call is rebuilt from the action's own fields, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.openai_chat import outcome_of
from pipelines.synthesis.ingest.parts import arguments_text, content_text, json_text, mapping, omitted, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory

__all__ = ["OpenHands"]

_NOT_ARGUMENTS = {
    "thought", "keep_prompt", "action", "is_confirmed", "action_risk", "security_risk", "confirmation_state",
    "hidden", "blocking", "is_static", "cwd", "kernel_init_code", "include_extra", "impl_source",
    "translated_ipython_code", "id", "source", "timestamp", "message", "args", "timeout", "wait_for_response",
}  # fmt: skip
_SILENT_ACTIONS = {"system", "recall", "change_agent_state", "null", "pause", "resume", "stop", "send_pr", "push"}
_SILENT_OBSERVATIONS = {"recall", "agent_state_changed", "null"}


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and ("action" in value or "observation" in value) and "role" not in value


def _history(value: Mapping[str, Any]) -> Any:
    return value.get("history")


class OpenHands:
    """{instance_id, history: [event …]} rows, or a list of events."""

    name = "openhands"

    def matches(self, value: Any) -> float:
        """A list of events with `action` or `observation`, alone or under `history`."""
        events = _history(value) if isinstance(value, dict) else value
        if not isinstance(events, list) or not events:
            return 0.0
        first = events[0][0] if isinstance(events[0], list) and events[0] else events[0]
        if not _is_event(first) or "valid_action" in first:
            return 0.0
        known = isinstance(first.get("args"), dict) or "source" in first or isinstance(value, dict)
        return 0.9 if known else 0.3

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        row: Mapping[str, Any] = value if isinstance(value, dict) else {"history": value}
        conversation = _Conversation(Notes())
        for index, event in enumerate(_flat(row["history"])):
            if not isinstance(event, dict):
                raise RecordError(f"history[{index}]", "an event must be an object", event)
            conversation.take(event, f"history[{index}]")
        conversation.close()
        metadata, result = mapping(row.get("metadata")), mapping(row.get("test_result"))
        yield assemble(
            source=self.name,
            place=place,
            messages=conversation.messages,
            notes=conversation.notes,
            task=_task(row),
            tools=conversation.tools,
            outcome=_outcome(row, result),
            extra={
                "error": row.get("error"),
                "model": mapping(metadata.get("llm_config")).get("model"),
                "submission": result.get("git_patch", row.get("git_patch")),
                "max_iterations": metadata.get("max_iterations"),
                "finished": conversation.finished,
            },
        )


def _flat(history: Any) -> Iterator[Any]:
    """Events in order; the oldest form holds [action, observation] pairs."""
    if not isinstance(history, list):
        raise RecordError("history", "must be a list of events", history)
    for item in history:
        if isinstance(item, list):
            yield from item
        else:
            yield item


def _task(row: Mapping[str, Any]) -> Task:
    instance = row.get("instance_id")
    if instance is None and isinstance(row.get("issue"), dict):
        issue = row["issue"]
        instance = f"{issue.get('owner')}/{issue.get('repo')}#{issue.get('number')}"
    instruction = row.get("instruction")
    return Task(
        id=str(instance) if instance is not None else None,
        instruction=instruction if isinstance(instruction, str) else "",
    )


def _outcome(row: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
    report = row.get("report")
    for holder in (report, result, result.get("report")):
        if isinstance(holder, dict) and isinstance(holder.get("resolved"), bool):
            return Outcome(holder["resolved"], None, "resolved")
    if isinstance(row.get("issue"), dict):
        success = row.get("success")  # the resolver's own guess by a model, not a test
        return Outcome(success if isinstance(success, bool) else None, None, "resolver model")
    return outcome_of(row)


class _Conversation:
    """Messages built event by event."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.messages: list[Message] = []
        self.tools = "[]"
        self.finished = False
        self._responses: dict[str, Message] = {}
        self._seen: set[tuple[str, str]] = set()
        self._by_event: dict[Any, str] = {}
        self._unpaired: str | None = None
        self._made = 0
        self._adjacent = False

    def take(self, event: Mapping[str, Any], field: str) -> None:
        """Add one event."""
        if event.get("observation") is not None:
            self._observe(event, field)
        elif event.get("action") is not None:
            self._act(event, field)
        else:
            raise RecordError(field, "an event must have 'action' or 'observation'", event)

    def close(self) -> None:
        """Note what held for the whole run."""
        if self._adjacent:
            self.notes.add("events without ids: calls rebuilt from action fields, results paired by adjacency")

    def _act(self, event: Mapping[str, Any], field: str) -> None:
        action = str(event["action"])
        arguments = event["args"] if isinstance(event.get("args"), dict) else event
        self.finished = self.finished or action == "finish"
        if action == "system":
            self.messages.append(
                Message(role="system", content=content_text(arguments.get("content"), self.notes, field))
            )
            self.tools = tools_text(arguments.get("tools"), self.notes)
            return
        if action in ("condensation", "condensation_request"):
            self.notes.add("context condensed here: the model no longer saw the earlier turns in full")
            summary = arguments.get("summary")
            if isinstance(summary, str) and summary:
                self.messages.append(Message(role="user", content=summary, name="condensation", author="harness"))
            return
        metadata = event.get("tool_call_metadata")
        if isinstance(metadata, dict) and metadata.get("model_response"):
            self._from_response(event, metadata, field)
            return
        if action in _SILENT_ACTIONS:
            return
        if action == "message":
            self._message(event, arguments, field)
            return
        if event.get("source") in ("user", "environment"):
            self.notes.add(f"'{action}' actions not by the agent, left out")
            return
        self._rebuild(event, action, arguments)

    def _message(self, event: Mapping[str, Any], arguments: Mapping[str, Any], field: str) -> None:
        source = event.get("source")
        if source is None:  # legacy rows: the first message is the task, and only the agent waits for an answer
            agent = bool(self.messages) and arguments.get("wait_for_response") is True
            source = "agent" if agent else "user"
        text = content_text(arguments.get("content"), self.notes, field)
        images = arguments.get("image_urls") or arguments.get("images_urls") or []
        text += "".join(omitted("image", self.notes) for _ in images)
        self.messages.append(Message(role="assistant" if source == "agent" else "user", content=text))

    def _from_response(self, event: Mapping[str, Any], metadata: Mapping[str, Any], field: str) -> None:
        """A turn from the stored model response; later actions of the same response add nothing."""
        response = metadata["model_response"]
        choices = response.get("choices") if isinstance(response, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise RecordError(f"{field}.tool_call_metadata.model_response", "has no choices", response)
        call_id = str(metadata.get("tool_call_id") or "")
        self._by_event[event.get("id")] = call_id
        key = str(response.get("id"))
        if (key, call_id) in self._seen:
            return
        raw = choices[0].get("message") or {}
        calls = raw.get("tool_calls") or []
        for call in calls:
            self._seen.add((key, str(call.get("id") or "")))
        self._seen.add((key, call_id))
        self.messages.append(
            Message(
                role="assistant",
                content=content_text(raw.get("content"), self.notes, field),
                reasoning=raw.get("reasoning_content") or None,
                tool_calls=[
                    ToolCall(
                        str(call.get("id") or ""),
                        str((call.get("function") or {}).get("name") or ""),
                        arguments_text((call.get("function") or {}).get("arguments"), self.notes),
                    )
                    for call in calls
                ],
                stop=choices[0].get("finish_reason"),
            )
        )

    def _rebuild(self, event: Mapping[str, Any], action: str, arguments: Mapping[str, Any]) -> None:
        """A call from the action's own fields, where the model's text was not recorded."""
        self._adjacent = True
        self._made += 1
        identity = f"event_{self._made}"
        thought = arguments.get("thought")
        outputs = arguments.get("outputs")
        content = thought if isinstance(thought, str) else ""
        kept = {
            key: value for key, value in arguments.items()
            if key not in _NOT_ARGUMENTS and value is not None and (key != "outputs" or outputs)
        }  # fmt: skip
        call = ToolCall(identity, action, json_text(kept))
        self.messages.append(Message(role="assistant", content=content, tool_calls=[call]))
        self._by_event[event.get("id")] = identity
        self._unpaired = identity

    def _observe(self, event: Mapping[str, Any], field: str) -> None:
        kind = str(event["observation"])
        if kind in _SILENT_OBSERVATIONS:
            return
        extras = mapping(event.get("extras"))
        text = content_text(event.get("content"), self.notes, field)
        metadata = event.get("tool_call_metadata")
        identity = None
        if isinstance(metadata, dict) and metadata.get("tool_call_id"):
            identity = str(metadata["tool_call_id"])
        elif event.get("cause") is not None:
            identity = self._by_event.get(event["cause"])
        elif self._unpaired is not None and "id" not in event:
            identity, self._unpaired = self._unpaired, None
        error, signal = _signal(kind, event, extras)
        if identity is None:
            if kind == "error":
                signal = "error_observation:unrecorded_call"
                self.notes.add("error observations for a call that the log does not hold")
            elif kind == "user_rejected":
                self.notes.add("rejected actions")
            self.messages.append(Message(role="user", content=text, name="observation", error=error, signal=signal))
            return
        self.messages.append(Message(role="tool", content=text, tool_call_id=identity, error=error, signal=signal))


def _signal(kind: str, event: Mapping[str, Any], extras: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """(error, signal) of an observation: its kind, then its exit code (-1: still running, no verdict)."""
    if kind == "error":
        return True, "error_observation"
    metadata = extras.get("metadata")
    code = metadata.get("exit_code") if isinstance(metadata, dict) else extras.get("exit_code", event.get("exit_code"))
    if isinstance(code, int) and not isinstance(code, bool):
        return (None if code == -1 else code != 0), f"exit_code={code}"
    return None, None
