"""OpenHands SDK (version 1) events: {kind: SystemPromptEvent | MessageEvent | ActionEvent | ObservationEvent | …}.

Actions of one `llm_response_id` are one turn; observations link by `tool_call_id`. An AgentErrorEvent answers its call
as an error. A Condensation is noted where it stands, its summary is a turn of the harness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_message
from pipelines.synthesis.ingest.formats.openai_chat import outcome_of, task_of
from pipelines.synthesis.ingest.parts import arguments_text, content_text, json_text, mapping, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["OpenHandsSdk"]

_KINDS = {"SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "Condensation"}
_SILENT = {"PauseEvent", "ConversationStateUpdateEvent", "CondensationRequest", "CondensationSummaryEvent"}


class OpenHandsSdk:
    """{instance_id, history: [event …]} rows, or a list of events."""

    name = "openhands-sdk"

    def matches(self, value: Any) -> float:
        """Events whose `kind` is one of the SDK's."""
        events = value.get("history", value.get("events")) if isinstance(value, dict) else value
        if not isinstance(events, list) or not events:
            return 0.0
        return 0.95 if any(isinstance(event, dict) and event.get("kind") in _KINDS for event in events[:3]) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        row: Mapping[str, Any] = value if isinstance(value, dict) else {"history": value}
        notes = Notes()
        messages: list[Message] = []
        tools = "[]"
        turns: dict[str, Message] = {}
        for index, event in enumerate(row.get("history", row.get("events")) or []):
            field = f"history[{index}]"
            kind = event.get("kind") if isinstance(event, dict) else None
            if kind == "SystemPromptEvent":
                messages.append(
                    Message(
                        role="system", content=content_text(event.get("system_prompt"), notes, f"{field}.system_prompt")
                    )
                )
                tools = tools_text(event.get("tools"), notes)
            elif kind == "MessageEvent":
                messages.append(chat_message(event.get("llm_message"), notes, f"{field}.llm_message"))
            elif kind == "ActionEvent":
                _act(event, messages, turns, notes, field)
            elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
                messages.append(_result(event, notes, field))
            elif kind == "Condensation":
                notes.add("context condensed here: the model no longer saw the earlier turns in full")
                if isinstance(event.get("summary"), str) and event["summary"]:
                    messages.append(
                        Message(role="user", content=event["summary"], name="condensation", author="harness")
                    )
            elif isinstance(kind, str) and (kind in _SILENT or kind.endswith("Event")):
                notes.add(f"events of kind '{kind}', not turns")
            else:
                raise RecordError(f"{field}.kind", "not an event of the SDK", event)
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=task_of(row),
            tools=tools,
            outcome=outcome_of(mapping(row.get("report")) or row),
            extra={
                "error": row.get("error"),
                "submission": mapping(row.get("test_result")).get("git_patch"),
            },
        )


def _act(
    event: Mapping[str, Any], messages: list[Message], turns: dict[str, Message], notes: Notes, field: str
) -> None:
    call = mapping(event.get("tool_call"))
    name = call.get("name") or mapping(call.get("function")).get("name") or event.get("tool_name")
    if not isinstance(name, str):
        raise RecordError(f"{field}.tool_name", "an action must name its tool", name)
    arguments = call.get("arguments", mapping(call.get("function")).get("arguments"))
    if arguments is None:
        notes.add("calls rebuilt from action fields")
        action = {key: value for key, value in mapping(event.get("action")).items() if key != "kind"}
        arguments = json_text(action)
    identity = str(call.get("id") or event.get("tool_call_id") or "")
    response = str(event.get("llm_response_id") or "")
    turn = turns.get(response) if response else None
    if turn is None:
        reasoning = event.get("reasoning_content")
        turn = Message(
            role="assistant",
            content=content_text(event.get("thought"), notes, f"{field}.thought"),
            reasoning=reasoning if isinstance(reasoning, str) and reasoning else None,
        )
        messages.append(turn)
        if response:
            turns[response] = turn
    turn.tool_calls.append(ToolCall(identity, name, arguments_text(arguments, notes)))


def _result(event: Mapping[str, Any], notes: Notes, field: str) -> Message:
    identity = str(event.get("tool_call_id") or "") or None
    if event["kind"] != "ObservationEvent":
        text = event.get("error") or event.get("rejection_reason") or ""
        failed = event["kind"] == "AgentErrorEvent"
        signal = "agent_error" if failed else "rejected"
        return Message(role="tool", content=str(text), tool_call_id=identity, error=failed or None, signal=signal)
    observation = mapping(event.get("observation"))
    content = observation.get("content", observation.get("output", observation.get("message")))
    message = Message(
        role="tool", content=content_text(content, notes, f"{field}.observation.content"), tool_call_id=identity
    )
    code = observation.get("exit_code", mapping(observation.get("metadata")).get("exit_code"))
    flag = observation.get("is_error", observation.get("error"))
    if isinstance(code, int) and not isinstance(code, bool) and code != -1:
        message.error, message.signal = code != 0, f"exit_code={code}"
    elif isinstance(flag, bool):
        message.error, message.signal = flag, "is_error" if flag else None
    return message
