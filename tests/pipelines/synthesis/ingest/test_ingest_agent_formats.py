"""Files that agents and benchmarks write: one small file of each kind, with what must come out."""

import json


def only(found):
    trajectories, aside = found
    assert aside == []
    assert len(trajectories) == 1
    return trajectories[0]


def roles(trajectory):
    return [message.role for message in trajectory.messages]


def test_swe_agent_history_is_the_run_and_demonstrations_are_marked(ingest):
    history = [
        {"role": "system", "content": "SETTING", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "demo", "agent": "main", "is_demo": True},
        {"role": "assistant", "content": "demo step", "agent": "main", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": "issue"}], "agent": "main"},
        {
            "role": "assistant", "content": "look", "thought": "look", "action": "ls", "agent": "main",
            "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
        },
        {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["c"]},
    ]  # fmt: skip
    value = {
        "environment": "main",
        "trajectory": [{"action": "ls", "observation": "a.py", "response": "look", "messages": history}],
        "history": history,
        "info": {"exit_status": "submitted", "submission": "diff"},
        "replay_config": json.dumps({"problem_statement": {"id": "repo-1", "text": "the issue"}}),
    }
    found = only(ingest(value))
    assert found.source == "swe-agent"
    assert roles(found) == ["system", "user", "assistant", "user", "assistant", "tool"]
    assert [m.author for m in found.messages] == [None, "demo", "demo", None, None, None]
    assert found.messages[5].tool_call_id == "c"
    assert (found.task.id, found.task.instruction) == ("repo-1", "the issue")
    assert found.outcome.success is None
    assert json.loads(found.extra) == {"exit_status": "submitted", "submission": "diff", "steps": 1}


def test_swe_agent_text_actions_and_an_exit_by_cost(ingest):
    value = {
        "trajectory": [],
        "history": [
            {"role": "user", "content": "issue", "agent": "primary"},
            {"role": "assistant", "content": "DISCUSSION\n```\nls\n```", "thought": "t", "action": "ls"},
            {"role": "user", "content": "a.py", "agent": "primary"},
            {"role": "assistant", "content": "Exit due to cost limit", "agent": "primary"},
        ],
        "info": {"exit_status": "submitted (exit_cost)"},
    }
    found = only(ingest(value))
    assert roles(found) == ["user", "assistant", "user", "assistant"]
    assert found.messages[1].tool_calls == []
    assert found.messages[2].name == "observation"
    assert (found.messages[3].author, found.messages[3].stop) == ("harness", "submitted (exit_cost)")


def test_a_yaml_demonstration_is_never_the_models_words(ingest):
    user, assistant = (
        "  - role: user\n    content: |-\n      go\n    agent: main\n",
        "  - role: assistant\n    content: ok\n",
    )
    text = f"# demo\nhistory:\n{user}{assistant}"
    found = only(ingest(text))
    assert [m.author for m in found.messages] == [None, "demo"]
    assert found.source == "swe-agent"


def test_mini_swe_agent_return_codes_are_signals(ingest):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "Please solve"},
        {"role": "assistant", "content": "THOUGHT\n```bash\nls x\n```"},
        {"role": "user", "content": "<returncode>2</returncode>\n<output>\nno\n</output>"},
        {"role": "assistant", "content": "no block"},
        {"role": "user", "content": "Please always provide EXACTLY ONE action in triple backticks, found 0 actions."},
        {"role": "assistant", "content": "```bash\nls\n```"},
        {"role": "user", "content": [{"type": "text", "text": "<returncode>0</returncode>\n<output>\n</output>"}]},
    ]
    expected = [(None, None), (True, "exit_code=2"), (True, "format_error"), (False, "exit_code=0")]
    bare = only(ingest(messages))
    wrapped = only(
        ingest({"info": {"exit_status": "LimitsExceeded", "mini_version": "1.13.4"}, "messages": messages,
                "trajectory_format": "mini-swe-agent-1"})
    )  # fmt: skip
    for found in (bare, wrapped):
        assert found.source == "mini-swe-agent"
        assert [(m.error, m.signal) for m in found.messages if m.role == "user"] == expected
        assert found.stats.errors == 2
    assert wrapped.messages[6].stop == "LimitsExceeded"


def response(identity, calls, content=None, finish="stop"):
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return {"id": identity, "choices": [{"finish_reason": finish, "message": {"content": content, "tool_calls": made}}]}


def test_openhands_turns_come_from_the_stored_response(ingest):
    parallel = response("r1", [("toolu_01", "execute_bash", '{"command":"ls"}'), ("toolu_02", "think", "{}")], "Look.")
    later = response("r2", [("toolu_01", "execute_bash", '{"command": "cat"}')])
    meta = lambda answer, call: {"model_response": answer, "tool_call_id": call, "function_name": "f"}  # noqa: E731
    extras = lambda code: {"metadata": {"exit_code": code}}  # noqa: E731
    history = [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are", "tools": [
            {"type": "function", "function": {"name": "execute_bash"}}]}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": "fix", "image_urls": ["u"]}},
        {"id": 2, "source": "user", "action": "recall", "args": {"query": "fix"}},
        {"id": 4, "source": "environment", "observation": "recall", "content": "ctx", "cause": 2},
        {"id": 5, "source": "agent", "action": "run", "args": {}, "tool_call_metadata": meta(parallel, "toolu_01")},
        {"id": 6, "source": "agent", "observation": "run", "content": "a", "cause": 5, "extras": extras(127)},
        {"id": 8, "source": "agent", "action": "think", "args": {}, "tool_call_metadata": meta(parallel, "toolu_02")},
        {"id": 9, "source": "agent", "observation": "think", "content": "ok", "cause": 8},
        {"id": 12, "source": "agent", "observation": "error", "content": "bad argument", "extras": {}},
        {"id": 13, "source": "agent", "action": "run", "args": {}, "tool_call_metadata": meta(later, "toolu_01")},
        {"id": 14, "source": "agent", "observation": "run", "content": "...", "cause": 13, "extras": extras(-1)},
    ]  # fmt: skip
    row = {"instance_id": "x-1", "history": history, "test_result": {"git_patch": "d"}, "report": {"resolved": False}}
    trajectories, aside = ingest(lines=[row, row])
    assert aside == []
    found = trajectories[0]
    assert roles(found) == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool"]
    first = found.messages[2]
    assert (first.content, first.stop) == ("Look.", "stop")
    assert [(c.id, c.arguments) for c in first.tool_calls] == [("toolu_01", '{"command":"ls"}'), ("toolu_02", "{}")]
    assert [(m.error, m.signal) for m in found.messages[3:6]] == [
        (True, "exit_code=127"),
        (None, None),
        (True, "error_observation:unrecorded_call"),
    ]
    second = found.messages[6].tool_calls[0]
    assert second.id != "toolu_01"
    assert (found.messages[7].tool_call_id, found.messages[7].error) == (second.id, None)
    assert found.outcome.success is False
    assert json.loads(found.extra)["submission"] == "d"


def test_openhands_legacy_events_pair_by_adjacency(ingest):
    history = [
        {"content": "task", "images_urls": None, "wait_for_response": False, "action": "message"},
        {"command": "ls", "thought": "I look.", "keep_prompt": True, "action": "run", "is_confirmed": "confirmed"},
        {"content": "a.py", "observation": "run", "extras": {"exit_code": 1}},
        {"content": "done?", "wait_for_response": True, "action": "message"},
        {"outputs": {}, "thought": "", "action": "finish"},
    ]
    row = {"issue": {"owner": "o", "repo": "r", "number": 5}, "history": history, "success": True}
    found = only(ingest(row))
    assert roles(found) == ["user", "assistant", "tool", "assistant", "assistant"]
    call = found.messages[1].tool_calls[0]
    assert (found.messages[1].content, call.name, call.arguments) == ("I look.", "run", '{"command": "ls"}')
    assert (found.messages[2].tool_call_id, found.messages[2].error) == (call.id, True)
    assert (found.task.id, found.outcome.verified_by) == ("o/r#5", "resolver model")


def test_tau_bench_runs_reward_and_error_prefix(ingest):
    run = {
        "task_id": 3, "reward": 1.0, "trial": 2, "info": {"task": {"instruction": "You are Mia"}},
        "traj": [
            {"role": "system", "content": "policy"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "get", "arguments": '{"x":1}'}}]},
            {"role": "tool", "tool_call_id": "a", "name": "get", "content": "Error: not found"},
            {"role": "assistant", "content": "Sorry."},
        ],
    }  # fmt: skip
    trajectories, aside = ingest([run, {**run, "reward": 0.0, "traj": []}, run])
    assert [item.problem for item in aside] == ["the run has no messages"]
    assert aside[0].record == "[1]"
    found = trajectories[0]
    assert (found.task.id, found.task.instruction) == ("3", "You are Mia")
    assert (found.outcome.success, found.outcome.reward) == (True, 1.0)
    assert (found.messages[3].error, found.messages[3].signal) == (True, "error_prefix")
    assert [item.origin.rpartition(":")[2] for item in trajectories] == ["[0]", "[2]"]


def test_tau2_leaves_out_what_the_agent_never_saw(ingest):
    simulation = {
        "task_id": "t", "trial": 0, "termination_reason": "user_stop", "reward_info": {"reward": 0.0},
        "messages": [
            {"role": "assistant", "content": "Hi! How can I help?"},
            {"role": "user", "content": "My phone is dead."},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "name": "look_up", "arguments": {"b": 1, "a": 2}, "requestor": "assistant"}]},
            {"role": "tool", "id": "1", "content": "boom", "requestor": "assistant", "error": True},
            {"role": "user", "content": None, "tool_calls": [{"id": "9", "name": "reboot", "arguments": {}}]},
            {"role": "tool", "id": "9", "content": "rebooted", "requestor": "user", "error": False},
            {"role": "assistant", "content": "Done."},
        ],
    }  # fmt: skip
    trajectories, aside = ingest({"info": {}, "simulations": [simulation, {"messages": 3}]})
    found = trajectories[0]
    assert roles(found) == ["assistant", "user", "assistant", "tool", "assistant"]
    assert found.messages[0].author == "harness"
    assert found.messages[2].tool_calls[0].arguments == '{"b": 1, "a": 2}'
    assert (found.messages[3].tool_call_id, found.messages[3].error) == ("1", True)
    assert found.outcome.success is False
    assert [item.field for item in aside] == ["messages"]


def test_tau_few_shot_calls_are_lost_and_say_so(ingest):
    row = {"messages_display": "user: hi\nwith a second line\nassistant: None\ntool: {}\nassistant: done"}
    trajectories, aside = ingest(lines=[row, {"messages_display": "no role"}])
    found = trajectories[0]
    assert [(m.role, m.content, m.author) for m in found.messages] == [
        ("user", "hi\nwith a second line", None),
        ("assistant", "", "lost"),
        ("tool", "{}", None),
        ("assistant", "done", None),
    ]
    assert aside[0].field == "messages_display"


def test_intercode_labels_every_step_and_refuses_lists_that_do_not_line_up(ingest):
    run = {
        "environment": "ic_bash", "dataset": "./data/nl2bash/fs_1.json", "task_id": 4, "query": "count",
        "turn_history": {"actions": ["lss", "ls"], "observations": ["not found", "a"], "rewards": [0, 1],
                         "valid_action": [False, True]},
        "summary": {"max_reward": 1.0},
    }  # fmt: skip
    bad = {**run, "turn_history": {**run["turn_history"], "observations": ["x"]}}
    trajectories, aside = ingest({"0": run, "1": bad, "2": run})
    found = trajectories[0]
    assert roles(found) == ["user", "assistant", "tool", "assistant", "tool"]
    assert [(m.error, m.signal) for m in found.messages if m.role == "tool"] == [
        (True, "valid_action=false"),
        (False, None),
    ]
    assert found.messages[1].tool_calls[0].arguments == '{"action": "lss"}'
    assert (found.task.id, found.outcome.success) == ("fs_1/4", True)
    assert len(trajectories) == 2
    assert (aside[0].record, aside[0].field) == ("key '1'", "turn_history.observations")


def test_intercode_plan_solve_refine_is_refused_by_name(ingest):
    run = {"query": "q", "turn_history": {"actions": ["a"], "observations": ["b"], "steps": ["s"]}}
    trajectories, aside = ingest({"meta": {"env": "bash"}, "logs": {"0": run}})
    assert trajectories == []
    assert aside[0].format == "intercode"
    assert "plan-solve-refine" in aside[0].problem


def node(kind, text, *children, code=None, pruned=False):
    made = {"node_type": kind, "description": text, "children": list(children), "pruned": pruned}
    if code is not None:
        made |= {"observation": f"observed {text}", "observation_code": code}
    return made


def tree(root, win, finish="give_answer"):
    return {
        "win": win,
        "tree": {"tree": root},
        "answer_generation": {
            "query": "q", "finish_type": finish, "function": [{"name": "api", "parameters": {}}],
            "train_messages": [[{"role": "system", "content": "S"}, {"role": "user", "content": "\nq\nBegin!\n"},
                                {"role": "assistant", "content": "x"}]],
        },
    }  # fmt: skip


def test_toolbench_gives_each_leaf_and_every_node_once(ingest):
    gives_up = node("Action", "Finish", node("Action Input", '{"return_type": "give_up"}', code=4, pruned=True))
    answer = node("Action", "Finish", node("Action Input", '{"return_type": "give_answer"}', code=3))
    bad = node("Action", "api", node("Action Input", "{}", node("Thought", "hm", gives_up), answer, code=11))
    found, aside = ingest(tree(node("Action Input", "", bad), win=True))
    assert aside == []
    winning, other = found
    assert [m.role for m in winning.messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert [c.name for m in winning.messages for c in m.tool_calls] == ["api", "Finish"]
    assert (winning.outcome.success, other.outcome.success) == (True, False)
    assert [(m.error, m.signal) for m in winning.messages if m.role == "tool"] == [
        (True, "observation_code=11"),
        (False, "observation_code=3"),
    ]
    assert [m.author for m in other.messages if m.role == "assistant"] == ["copied", None]
    assert other.messages[4].content == "hm"
    assert [m.error for m in other.messages if m.role == "tool"] == [True, False]


def test_toolbench_a_shared_thought_with_a_new_action_is_a_new_turn(ingest):
    shared = node("Thought", "think", node("Action", "a", node("Action Input", "{}", code=0)),
                  node("Action", "b", node("Action Input", "{}", code=0)))  # fmt: skip
    found, _ = ingest(tree(node("Action Input", "", shared), win=False, finish="give_up"))
    assert [[m.author for m in t.messages if m.role == "assistant"] for t in found] == [[None], [None]]


def test_tooleval_calls_that_were_cut_short_are_set_aside(ingest):
    def record(message):
        leaf = {"role": "tool", "message": message, "next": []}
        chain = {"role": "system", "message": "", "next": [{"role": "user", "message": "q", "next": [leaf]}]}
        return {"query": "query", "available_tools": [], "answer": {"method": "CoT", "answer_details": [chain]}}

    whole = "{'name': 'f', 'arguments': '{\"a\": 1}', 'response': 'ok'}"
    trajectories, aside = ingest({"1": record(whole), "2": record(whole[:30])})
    assert [m.role for m in trajectories[0].messages] == ["user", "assistant", "tool"]
    assert trajectories[0].messages[1].tool_calls[0].arguments == '{"a": 1}'
    assert "cut short" in aside[0].problem
