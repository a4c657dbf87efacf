"""Session files whose lines are one run: Claude Code, pi, Codex."""

import json


def user(uuid, parent, content, **more):
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": {
        "role": "user", "content": content}, **more}  # fmt: skip


def assistant(uuid, parent, identity, *blocks, stop=None, **more):
    message = {"id": identity, "role": "assistant", "content": list(blocks), "stop_reason": stop, "model": "claude"}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **more}


def text(value):
    return {"type": "text", "text": value}


def use(identity, name="Bash"):
    return {"type": "tool_use", "id": identity, "name": name, "input": {"command": "ls"}}


def result(identity, content="ok", **more):
    return {"type": "tool_result", "tool_use_id": identity, "content": content, **more}


def words(trajectory):
    return [(m.role, m.content or [c.id for c in m.tool_calls]) for m in trajectory.messages]


def test_claude_code_lines_of_one_message_are_one_turn(ingest):
    lines = [
        {"type": "summary", "summary": "x", "leafUuid": "r2"},
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", {"type": "thinking", "thinking": "hm"}),
        assistant("a2", "a1", "m1", text("Looking.")),
        assistant("a3", "a2", "m1", use("t1")),
        assistant("a4", "a3", "m1", use("t2"), stop="tool_use"),
        # results hang on the line of their call: not a branch
        user("r1", "a3", [result("t1", "Exit code 1\nno", is_error=True)], toolUseResult="Error"),
        user("r2", "a4", [result("t2")]),
        assistant("a5", "r2", "m2", text("Done.")),
    ]
    trajectories, aside = ingest(lines=lines)
    assert aside == []
    assert len(trajectories) == 1
    found = trajectories[0]
    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    turn = found.messages[1]
    assert (turn.reasoning, turn.content, turn.stop) == ("hm", "Looking.", "tool_use")
    assert [c.id for c in turn.tool_calls] == ["t1", "t2"]
    assert [(m.error, m.signal) for m in found.messages[2:4]] == [(True, "exit_code=1"), (None, None)]
    assert "lines merged into the message of the same id: 3" in found.notes
    assert found.source == "claude-code"


def test_claude_code_branches_and_sidechains_are_trajectories_of_their_own(ingest):
    lines = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", text("first")),
        user("u2", "a1", "old question"),
        assistant("a2", "u2", "m2", text("old answer")),
        user("s1", None, "sub task", isSidechain=True),
        assistant("s2", "s1", "m9", text("sub answer"), isSidechain=True),
        user("u3", "a1", "new question"),
        assistant("a3", "u3", "m3", text("new answer")),
    ]
    trajectories, aside = ingest(lines=lines)
    assert aside == []
    assert [words(t) for t in trajectories] == [
        [("user", "go"), ("assistant", "first"), ("user", "new question"), ("assistant", "new answer")],
        [("user", "go"), ("assistant", "first"), ("user", "old question"), ("assistant", "old answer")],
        [("user", "sub task"), ("assistant", "sub answer")],
    ]
    assert [[m.author for m in t.messages if m.role == "assistant"] for t in trajectories] == [
        [None, None],
        ["copied", None],
        [None],
    ]
    assert json.loads(trajectories[2].extra)["sidechain"] is True


def test_claude_code_compaction_starts_another_trajectory(ingest):
    lines = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", text("working")),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "logicalParentUuid": "a1"},
        user("u2", "b", "This session is continued", isCompactSummary=True),
        assistant("a2", "u2", "m2", text("going on")),
    ]
    trajectories, _ = ingest(lines=lines)
    assert sorted(words(t)[0][1] for t in trajectories) == ["This session is continued", "go"]
    later = next(t for t in trajectories if t.messages[0].content.startswith("This"))
    assert any(note.startswith("starts with the summary of a compaction") for note in later.notes)


def test_claude_code_broken_lines_are_set_aside_and_the_run_goes_on(ingest):
    lines = [
        user("u1", None, "go"),
        '"a string"',
        "42",
        "[1]",
        '{"silly": "this"}',
        '{"type": "user", "uuid": "x", "mess',
        {"type": "user", "uuid": "u2", "parentUuid": None, "message": "error", "sessionId": "s"},
        {
            "type": "user",
            "uuid": "u3",
            "parentUuid": None,
            "message": {"role": "user", "contenst": []},
            "sessionId": "s",
        },
        assistant("a1", "u1", "m1", text("fine")),
        user("u4", "gone", "after a lost parent"),
        assistant("a2", "u4", "m2", {"type": "tool_use", "id": "t"}),
    ]
    trajectories, aside = ingest(lines=lines)
    assert [words(t) for t in trajectories] == [
        [("user", "go"), ("assistant", "fine"), ("user", "after a lost parent")]
    ]
    assert "parent lines that are not in the file, file order used" in trajectories[0].notes
    by_line = {item.record: item for item in aside}
    assert sorted(by_line) == ["line 11", "line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 8"]
    assert by_line["line 6"].problem.startswith("not JSON")
    assert by_line["line 7"].field == "message"
    assert by_line["line 8"].field == "message.content"
    assert by_line["line 11"].field.endswith(".name")


def test_claude_code_harness_turns_interruptions_and_the_loglines_form(ingest):
    synthetic = assistant("a2", "u2", "m2", text("API Error"))
    synthetic["message"]["model"] = "<synthetic>"
    lines = [
        user("u1", None, "go"),
        assistant("a1", "u1", "m1", text("half")),
        user("u2", "a1", [text("[Request interrupted by user]")]),
        synthetic,
    ]
    (found,), aside = ingest({"loglines": lines})
    assert aside == []
    assert found.messages[1].stop == "interrupted"
    assert found.messages[3].author == "harness"


def pi_message(role, content, **more):
    return {"type": "message", "timestamp": "t", "message": {"role": role, "content": content, **more}}


def pi_call(identity, **more):
    return {"type": "toolCall", "id": identity, "name": "read", "arguments": {"path": "a"}, **more}


def test_pi_session_parts_stops_and_partial_calls(ingest):
    lines = [
        {"type": "session", "id": "s1", "modelId": "m", "cwd": "/x"},
        pi_message("user", [text("go")]),
        pi_message("assistant", [], stopReason="aborted"),
        pi_message("assistant", [{"type": "thinking", "thinking": "hm"}, text("Read."), pi_call("c1"), pi_call("c2")],
                   stopReason="toolUse"),
        {"type": "thinking_level_change", "thinkingLevel": "low"},
        pi_message("toolResult", [text("boom")], toolCallId="c2", toolName="read", isError=True),
        pi_message("toolResult", [text("fine")], toolCallId="c1", toolName="read", isError=False),
        {"type": "message", "message": {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}},
        pi_message("assistant", [pi_call("c3", partialJson='{"path": "a')], stopReason="aborted"),
    ]  # fmt: skip
    (found,), aside = ingest(lines=lines)
    assert aside == []
    assert found.source == "pi"
    assert [m.role for m in found.messages] == [
        "user", "assistant", "assistant", "tool", "tool", "user", "assistant",
    ]  # fmt: skip
    assert [m.stop for m in found.messages if m.role == "assistant"] == ["aborted", "toolUse", "aborted"]
    assert (found.messages[2].reasoning, found.messages[2].content) == ("hm", "Read.")
    assert [(m.tool_call_id, m.error, m.signal) for m in found.messages if m.role == "tool"] == [
        ("c2", True, "isError"),
        ("c1", False, None),
    ]
    assert found.messages[5].content == "Ran `ls`\n```\na\n```"
    assert found.messages[6].tool_calls[0].arguments == '{"path": "a'


def test_pi_compaction_gives_what_the_model_saw(ingest):
    lines = [
        {"type": "session", "id": "s1"},
        pi_message("user", [text("go")]),
        pi_message("assistant", [text("old")], stopReason="stop"),
        pi_message("assistant", [text("kept")], stopReason="stop"),
        {"type": "compaction", "summary": "so far", "firstKeptEntryIndex": 3, "tokensBefore": 9},
        pi_message("assistant", [text("new")], stopReason="stop"),
    ]
    trajectories, aside = ingest(lines=lines)
    assert aside == []
    assert [words(t) for t in trajectories] == [
        [("user", "go"), ("assistant", "old"), ("assistant", "kept")],
        [("user", "so far"), ("assistant", "kept"), ("assistant", "new")],
    ]
    assert [m.author for m in trajectories[1].messages] == [None, "copied", None]
    assert trajectories[1].messages[0].name == "compaction"


def test_pi_entries_with_parents_form_branches(ingest):
    def entry(identity, parent, role, value):
        return {**pi_message(role, [text(value)]), "id": identity, "parentId": parent}

    lines = [
        {"type": "session", "id": "s1", "version": 3},
        entry("e1", None, "user", "go"),
        entry("e2", "e1", "assistant", "one"),
        entry("e3", "e2", "user", "left"),
        entry("e4", "e2", "user", "right"),
        entry("e5", "e4", "assistant", "two"),
    ]
    trajectories, _ = ingest(lines=lines)
    spoken = [words(t) for t in trajectories if t.messages]
    assert spoken[0] == [("user", "go"), ("assistant", "one"), ("user", "right"), ("assistant", "two")]
    assert [("user", "go"), ("assistant", "one"), ("user", "left")] in spoken


def item(kind, **payload):
    return {"timestamp": "t", "type": "response_item", "payload": {"type": kind, **payload}}


def test_codex_items_up_to_a_result_are_one_turn(ingest):
    output = json.dumps({"output": "no such file", "metadata": {"exit_code": 2}})
    lines = [
        {"type": "session_meta", "payload": {"id": "s", "instructions": "You are Codex", "cwd": "/x"}},
        item("message", role="user", content=[{"type": "input_text", "text": "fix"}]),
        {"type": "event_msg", "payload": {"type": "user_message", "message": "fix"}},
        item("reasoning", summary=[{"type": "summary_text", "text": "Plan"}], encrypted_content="zz"),
        item("message", role="assistant", content=[{"type": "output_text", "text": "I look."}]),
        item("function_call", name="shell", arguments='{"command":["ls"]}', call_id="c1"),
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2"),
        item("function_call_output", call_id="c1", output=output),
        item("custom_tool_call_output", call_id="c2", output="Exit code: 0\nOutput:\nDone"),
        item("message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
    ]
    (found,), aside = ingest(lines=lines)
    assert aside == []
    assert found.source == "codex"
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    turn = found.messages[2]
    assert (turn.reasoning, turn.content) == ("Plan", "I look.")
    assert [(c.name, c.arguments) for c in turn.tool_calls] == [
        ("shell", '{"command":["ls"]}'),
        ("apply_patch", '{"input": "*** Begin"}'),
    ]
    assert [(m.content, m.error, m.signal) for m in found.messages[3:5]] == [
        ("no such file", True, "exit_code=2"),
        ("Exit code: 0\nOutput:\nDone", False, "exit_code=0"),
    ]


def test_codex_compaction_starts_another_segment(ingest):
    lines = [
        {"type": "session_meta", "payload": {"id": "s"}},
        item("message", role="user", content=[{"type": "input_text", "text": "fix"}]),
        item("message", role="assistant", content=[{"type": "output_text", "text": "one"}]),
        {"type": "compacted", "payload": {"message": "summary so far"}},
        item("message", role="assistant", content=[{"type": "output_text", "text": "two"}]),
    ]
    trajectories, _ = ingest(lines=lines)
    assert [words(t) for t in trajectories] == [
        [("user", "fix"), ("assistant", "one")],
        [("user", "summary so far"), ("assistant", "two")],
    ]


def test_codex_old_form_without_wrappers(ingest):
    lines = [
        {"id": "s", "timestamp": "t", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "plain"},
    ]
    (found,), aside = ingest(lines=lines)
    assert aside == []
    assert [m.role for m in found.messages] == ["user", "assistant", "tool"]


def test_codex_lines_of_new_types_are_noted_not_lost(ingest):
    lines = [
        {"type": "session_meta", "payload": {"id": "s"}},
        item("message", role="user", content=[{"type": "input_text", "text": "fix"}]),
        item("reasoning", summary="Plan as text"),
        item("message", role="assistant", content=[{"type": "output_text", "text": "ok"}], phase="commentary"),
        {"type": "token_usage_record", "payload": {"turn_id": "t"}},
        item("agent_message", author="/root/review", content=[]),
    ]
    (found,), aside = ingest(lines=lines)
    assert [(m.role, m.content, m.reasoning) for m in found.messages] == [
        ("user", "fix", None),
        ("assistant", "ok", "Plan as text"),
    ]
    assert "lines of type 'token_usage_record', not turns" in found.notes
    assert [(row.record, row.received) for row in aside] == [("line 6", "agent_message")]
