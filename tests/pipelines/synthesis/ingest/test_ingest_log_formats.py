"""Evaluation logs, interchange formats and dataset rows: one small file of each kind, with what must come out."""

import io
import json
import zipfile

from pipelines.synthesis.ingest import read_file


def only(found):
    trajectories, aside = found
    assert aside == []
    assert len(trajectories) == 1
    return trajectories[0]


def roles(trajectory):
    return [message.role for message in trajectory.messages]


SAMPLE = {
    "id": 1, "epoch": 1,
    "messages": [
        {"role": "user", "content": "attachment://h1", "source": "input"},
        {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "r"}, {"type": "text", "text": ""}],
         "source": "generate", "tool_calls": [{"id": "c", "function": "click", "arguments": {"id": 3}}]},
        {"role": "tool", "tool_call_id": "c", "function": "click", "content": "",
         "error": {"type": "timeout", "message": "too slow"}},
        {"role": "assistant", "content": "done", "source": "generate"},
    ],
    "output": {"choices": [{"stop_reason": "max_tokens"}]},
    "scores": {"match": {"value": "I"}}, "store": {},
    "attachments": {"h1": "the question"},
    "events": [{"event": "model", "tools": [{"name": "click", "description": "d", "parameters": {}}]}],
}  # fmt: skip


def check_inspect(found):
    assert found.source == "inspect"
    assert found.messages[0].content == "the question"
    turn = found.messages[1]
    assert (turn.reasoning, turn.tool_calls[0].name, turn.tool_calls[0].arguments) == ("r", "click", '{"id": 3}')
    result = found.messages[2]
    assert (result.content, result.error, result.signal) == ("too slow", True, "tool_error=timeout")
    assert found.messages[3].stop == "max_tokens"
    assert (found.outcome.success, found.outcome.verified_by) == (False, "match")
    assert json.loads(found.tools)[0]["function"]["name"] == "click"


def test_inspect_log_as_json(ingest):
    found = only(ingest({"version": 2, "eval": {"task": "web", "model": "m"}, "plan": {}, "samples": [SAMPLE]}))
    check_inspect(found)
    assert found.task.id == "web/1"


def test_inspect_log_as_a_zip(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": {}}))
        archive.writestr("samples/1_epoch_1.json", json.dumps(SAMPLE))
        archive.writestr("samples/2_epoch_1.json", "{")
    path = tmp_path / "log.eval"
    path.write_bytes(data.getvalue())
    good, bad = list(read_file(str(path)))
    check_inspect(good)
    assert bad.record == "samples/2_epoch_1.json"


def test_a_zip_of_something_else_and_a_broken_zip_are_set_aside(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 nothing")
    assert "Inspect" in next(read_file(str(tmp_path / "other.zip"))).problem
    assert "cannot be decoded" in next(read_file(str(tmp_path / "broken.zip"))).problem


def test_atif_copied_steps_harness_steps_and_embedded_agents(ingest):
    inner = {"schema_version": "ATIF-v1.7", "trajectory_id": "sub", "agent": {"name": "a", "version": "1"},
             "steps": [{"step_id": 1, "source": "agent", "message": "inner"}]}  # fmt: skip
    value = {
        "schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "do", "is_copied_context": True},
            {"step_id": 2, "source": "agent", "message": "did", "is_copied_context": True},
            {"step_id": 3, "source": "agent", "message": "", "reasoning_content": "r",
             "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"z": 1, "a": 2}}],
             "observation": {"results": [{"content": [{"type": "text", "text": "ok"}, {"type": "image"}]}]}},
            {"step_id": 4, "source": "agent", "message": "auto", "llm_call_count": 0},
            {"step_id": 5, "source": "agent", "message": "no", "observation": {"results": [{"content": "ERROR"}]}},
            {"step_id": 6, "source": "system", "message": "handoff"},
        ],
        "subagent_trajectories": [inner],
    }  # fmt: skip
    trajectories, aside = ingest(value)
    assert aside == []
    found = trajectories[0]
    assert roles(found) == ["user", "assistant", "assistant", "tool", "assistant", "assistant", "user", "system"]
    assert [m.author for m in found.messages][:6] == ["copied", "copied", None, None, "harness", None]
    assert found.messages[2].tool_calls[0].arguments == '{"z": 1, "a": 2}'
    assert (found.messages[3].tool_call_id, found.messages[3].content) == ("c", "ok[image omitted]")
    assert found.messages[6].name == "observation"
    assert trajectories[1].messages[0].content == "inner"


def test_gemini_cli_results_sit_in_the_call(ingest):
    result = [{"functionResponse": {"id": "1", "name": "sh", "response": {"output": "boom"}}}]
    value = {
        "sessionId": "s", "projectHash": "p",
        "messages": [
            {"type": "user", "content": "go"},
            {"type": "gemini", "content": "", "model": "g", "thoughts": [{"subject": "Plan", "description": "do it"}],
             "toolCalls": [{"id": "1", "name": "sh", "args": {"c": "ls"}, "result": result, "status": "error"}]},
            {"type": "info", "content": "note"},
        ],
    }  # fmt: skip
    found = only(ingest(value))
    assert roles(found) == ["user", "assistant", "tool"]
    assert found.messages[1].reasoning == "Plan\ndo it"
    assert (found.messages[2].content, found.messages[2].error, found.messages[2].signal) == (
        "boom", True, "status=error",
    )  # fmt: skip


def test_agent_data_protocol_pairs_by_adjacency(ingest):
    value = {
        "id": "d1",
        "content": [
            {"class_": "text_observation", "content": "task", "source": "user"},
            {"class_": "api_action", "function": "goto", "kwargs": {"url": "u"}, "description": "I go."},
            {"class_": "web_observation", "axtree": "[1] root", "url": "u"},
            {"class_": "code_action", "language": "bash", "content": "ls", "description": None},
            {"class_": "text_observation", "content": "a", "source": "environment"},
            {"class_": "message_action", "content": "done"},
        ],
        "details": {},
    }
    found = only(ingest(value))
    assert roles(found) == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [(c.name, c.arguments) for m in found.messages for c in m.tool_calls] == [
        ("goto", '{"url": "u"}'),
        ("bash", '{"code": "ls"}'),
    ]
    assert found.messages[2].content == "URL: u\n[1] root"


def test_harbor_traces_train_every_reply_once(ingest):
    turns = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "<think>t</think>\none"},
        {"role": "user", "content": "seen"},
        {"role": "assistant", "content": "two"},
    ]
    row = {"agent": "terminus-2", "episode": "episode-0", "trial_name": "T", "result": None, "task": "hello"}
    rows = [
        {**row, "conversations": turns[:2]},
        {**row, "conversations": turns, "episode": "episode-1", "result": "1.0"},
    ]
    trajectories, aside = ingest(rows)
    assert aside == []
    assert [[m.author for m in t.messages if m.role == "assistant"] for t in trajectories] == [[None], ["copied", None]]
    assert trajectories[0].messages[1].reasoning == "t"
    assert (trajectories[0].outcome.success, trajectories[1].outcome.success) == (None, True)


def test_hub_rows_of_role_ai_and_their_mask(ingest):
    row = {
        "instance_id": "i", "target": True, "exit_status": "submitted (exit_context)", "generated_patch": "d",
        "trajectory": [
            {"role": "system", "system_prompt": "S", "text": None, "mask": False},
            {"role": "user", "text": "demo", "mask": True},
            {"role": "ai", "text": "shown", "mask": True},
            {"role": "user", "text": "issue", "mask": False},
            {"role": "ai", "text": "act", "mask": False},
        ],
    }  # fmt: skip
    found = only(ingest(row))
    assert roles(found) == ["system", "user", "assistant", "user", "assistant"]
    assert (found.messages[2].train, found.messages[2].author) == (False, "demo")
    assert found.messages[4].stop == "submitted (exit_context)"
    assert found.outcome.success is True


def test_agent_data_protocol_ids_and_descriptions_of_newer_rows(ingest):
    value = {
        "id": "os_42",
        "content": [
            {"class_": "text_observation", "content": "count", "source": "user"},
            {
                "class_": "code_action",
                "tool_call_id": "c1",
                "language": "bash",
                "content": "ls",
                "description": "Look.",
            },
            {"class_": "code_action", "tool_call_id": "c2", "language": "bash", "content": "pwd", "description": None},
            {"class_": "text_observation", "tool_call_id": "c2", "content": "/x", "source": "environment"},
            {"class_": "text_observation", "tool_call_id": "c1", "content": "a", "source": "environment"},
            {"class_": "message_action", "content": "<solution> 1 </solution>", "description": "One file."},
        ],
    }
    found = only(ingest([value]))
    assert [m.tool_call_id for m in found.messages if m.role == "tool"] == ["c2", "c1"]
    assert found.messages[-1].content == "One file.\n\n<solution> 1 </solution>"


def test_tau2_thinking_blocks_are_the_reasoning(ingest):
    raw = {"stop_reason": "end_turn", "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    simulation = {
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "raw_data": raw}]
    }
    found = only(ingest({"simulations": [simulation]}))
    assert (found.messages[1].reasoning, found.messages[1].stop) == ("hm", "end_turn")


def test_openhands_sdk_events(ingest):
    def act(identity, response, **more):
        call = {"id": identity, "name": "terminal", "arguments": '{"command": "ls"}'}
        return {"kind": "ActionEvent", "source": "agent", "tool_call": call, "llm_response_id": response, **more}

    def seen(identity, **observation):
        return {
            "kind": "ObservationEvent",
            "source": "environment",
            "tool_call_id": identity,
            "observation": observation,
        }

    history = [
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"type": "text", "text": "S"},
         "tools": [{"type": "function", "function": {"name": "terminal"}}]},
        {"kind": "MessageEvent", "source": "user", "llm_message": {
            "role": "user", "content": [{"type": "text", "text": "go"}]}},
        act("c1", "r1", thought=[{"type": "text", "text": "Look."}], reasoning_content="why"),
        act("c2", "r1"),
        seen("c1", content=[{"type": "text", "text": "no"}], exit_code=2),
        {"kind": "AgentErrorEvent", "source": "agent", "tool_call_id": "c2", "error": "bad arguments"},
        {"kind": "ConversationStateUpdateEvent", "source": "environment", "key": "k"},
        act("c3", "r2"),
        seen("c3", content="fine", is_error=False),
    ]  # fmt: skip
    found = only(ingest({"instance_id": "i", "history": history}))
    assert found.source == "openhands-sdk"
    assert roles(found) == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    turn = found.messages[2]
    assert (turn.content, turn.reasoning, [c.id for c in turn.tool_calls]) == ("Look.", "why", ["c1", "c2"])
    assert [(m.content, m.error, m.signal) for m in found.messages if m.role == "tool"] == [
        ("no", True, "exit_code=2"),
        ("bad arguments", True, "agent_error"),
        ("fine", False, None),
    ]


def test_gemini_cli_lines_and_a_rewound_session(ingest):
    header = {"sessionId": "s", "projectHash": "p", "kind": "main"}
    lines = [
        header,
        {"id": "u1", "type": "user", "content": [{"text": "hi"}]},
        {"$set": {"lastUpdated": "t"}},
        {"id": "g1", "type": "gemini", "content": [{"text": "hello"}], "model": "g"},
    ]
    found = only(ingest(lines=lines))
    assert found.source == "gemini-cli"
    assert [(m.role, m.content) for m in found.messages] == [("user", "hi"), ("assistant", "hello")]
    trajectories, aside = ingest(lines=[*lines, {"$rewindTo": "u1"}])
    assert trajectories == []
    assert aside[0].field == "$rewindTo"
