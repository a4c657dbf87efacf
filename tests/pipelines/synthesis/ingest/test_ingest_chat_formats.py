"""Rows of chat messages: OpenAI, fine-tuning, Anthropic, ShareGPT, Hermes, function text, LLaMA-Factory, parquet."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.synthesis.ingest import read_file

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"b":2, "a": 1}'}}


def only(found):
    trajectories, aside = found
    assert aside == []
    assert len(trajectories) == 1
    return trajectories[0]


def test_openai_row_keeps_argument_text_task_and_tools(ingest):
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    row = {
        "instance_id": "repo-7",
        "resolved": True,
        "messages": [
            {"role": "developer", "content": "Be exact."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "1+2"}, {"type": "image_url", "image_url": {"url": "x"}}],
            },
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "assistant", "content": "<think>\nsum\n</think>\n\n3"},
        ],
        "tools": tools,
    }
    found = only(ingest(row))
    assert found.source == "openai"
    assert found.family == "recorded"
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert found.messages[1].content == "1+2[image omitted]"
    assert found.messages[2].tool_calls[0].arguments == '{"b":2, "a": 1}'
    assert found.messages[3].name == "add"
    assert (found.messages[4].reasoning, found.messages[4].content) == ("sum", "3")
    assert found.task.id == "repo-7"
    assert found.outcome.success is True
    assert json.loads(found.tools) == tools
    assert found.stats.turns == 2
    assert found.notes == ["parts replaced by '[image omitted]'"]
    assert found.origin.endswith("input")


def test_fine_tuning_weight_becomes_the_mask(ingest):
    rows = [
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b", "weight": 0},
                {"role": "user", "content": "c"},
                {"role": "assistant", "tool_calls": [CALL], "weight": 1},
            ]
        }
    ] * 2
    trajectories, aside = ingest(lines=rows)
    assert aside == []
    assert len(trajectories) == 2
    assert [m.train for m in trajectories[0].messages] == [None, False, None, True]
    assert trajectories[0].origin.endswith(":line 1")


def test_legacy_function_call_and_arguments_encoded_twice(ingest):
    twice = json.dumps(json.dumps({"x": 1}))
    found = only(
        ingest(
            [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": twice}},
                {"role": "function", "name": "f", "content": "ok"},
            ]
        )
    )
    call = found.messages[1].tool_calls[0]
    assert (call.name, call.arguments) == ("f", '{"x": 1}')
    assert found.messages[2].role == "tool"
    assert found.messages[2].tool_call_id == call.id
    assert found.notes == [
        "arguments encoded twice, decoded once",
        "calls without an id, ids made",
        "results paired with calls by position",
    ]


def test_results_labelled_user_with_a_call_id_are_results(ingest):
    found = only(
        ingest(
            [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "user", "tool_call_id": "c1", "content": "3"},
            ]
        )
    )
    assert found.messages[2].role == "tool"
    assert found.notes == ["results labelled role 'user', read as tool"]


def test_only_a_closing_think_tag_is_reasoning_and_an_open_one_stays_text(ingest):
    found = only(
        ingest(
            [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "because</think>answer"},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "<think>cut off"},
            ]
        )
    )
    assert (found.messages[1].reasoning, found.messages[1].content) == ("because", "answer")
    assert (found.messages[3].reasoning, found.messages[3].content) == (None, "<think>cut off")


def test_anthropic_blocks_become_turns_with_results_of_their_own(ingest):
    row = {
        "system": "Policy",
        "tools": [{"name": "ls", "description": "list", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [
            {"role": "user", "content": "look"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "t1", "name": "ls", "input": {"z": 1, "a": "ü"}},
                    {"type": "tool_use", "id": "t2", "name": "ls", "input": {}},
                ],
                "stop_reason": "tool_use",
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "b"}]},
                    {"type": "tool_result", "tool_use_id": "t1", "content": "Exit code 2\nno", "is_error": True},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    }
    found = only(ingest(row))
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "tool", "tool", "user"]
    turn = found.messages[2]
    assert (turn.reasoning, turn.content, turn.stop) == ("hm", "Looking.", "tool_use")
    assert [call.arguments for call in turn.tool_calls] == ['{"z": 1, "a": "ü"}', "{}"]
    assert [(m.tool_call_id, m.error, m.signal) for m in found.messages[3:5]] == [
        ("t2", None, None),
        ("t1", True, "exit_code=2"),
    ]
    assert json.loads(found.tools)[0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert found.stats.errors == 1


def test_sharegpt_several_calls_in_one_value_and_tools_as_text(ingest):
    row = {
        "system": "S",
        "tools": '[{"name": "f", "parameters": {}}]',
        "conversations": [
            {"from": "human", "value": "go"},
            {
                "from": "function_call",
                "value": '[{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {}}]',
            },
            {"from": "observation", "value": "one"},
            {"from": "observation", "value": "two"},
            {"from": "gpt", "value": "done", "loss": False},
        ],
    }
    found = only(ingest([row]))
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    calls = found.messages[2].tool_calls
    assert [call.arguments for call in calls] == ['{"a": 1}', "{}"]
    assert [m.tool_call_id for m in found.messages[3:5]] == [call.id for call in calls]
    assert found.messages[5].train is False
    assert json.loads(found.tools) == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_hermes_text_calls_with_every_fault_kept(ingest):
    code = "print('</tool_call>')"
    system = 'Use <tools>{"type": "function", "function": {"name": "run"}}</tools>'
    quoted = f"I call.\n<tool_call>\n{json.dumps({'name': 'run', 'arguments': {'code': code}})}\n</tool_call>"
    python = "<tool_call>{'arguments': {'n': 1, 'deep': None}, 'name': 'run'}</tool_call>"
    row = {
        "conversations": [
            {"from": "system", "value": system},
            {"from": "human", "value": "go"},
            {"from": "gpt", "value": f"<think>a</think>{quoted}"},
            {"from": "tool", "value": "<tool_response>\n1\n</tool_response>"},
            {"from": "gpt", "value": f'{python}<tool_call>{{"name": "run", "argum</tool_call>'},
            {"from": "human", "value": "<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response>"},
            {"from": "gpt", "value": '<tool_call>{"name": "run", "arguments": {}}'},
        ]
    }
    found = only(ingest(row))
    assert found.source == "hermes"
    assert [m.role for m in found.messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    first = found.messages[2]
    assert (first.reasoning, first.content) == ("a", "I call.")
    assert json.loads(first.tool_calls[0].arguments) == {"code": code}
    faulty = found.messages[4].tool_calls
    assert [call.name for call in faulty] == ["run", "run"]
    assert json.loads(faulty[0].arguments) == {"n": 1, "deep": None}
    assert faulty[1].arguments == '{"name": "run", "argum'
    assert [m.content for m in found.messages[5:7]] == ["2", "3"]
    assert "tool_call tags that were never closed" in found.notes
    assert "calls in text that cannot be parsed, kept raw" in found.notes
    assert json.loads(found.tools)[0]["function"]["name"] == "run"


def test_a_conversation_that_only_quotes_a_tag_stays_text(ingest):
    found = only(
        ingest(
            [
                {"role": "user", "content": "How do I write a call?"},
                {"role": "assistant", "content": 'Like <tool_call>{"name": "f", "arguments": {}}</tool_call>.'},
            ]
        )
    )
    assert found.source == "openai"
    assert found.messages[1].tool_calls == []


def test_function_text_types_layout_and_cut_stop_word(ingest):
    system = (
        "Tools:\n---- BEGIN FUNCTION #1: edit ----\nDescription: Edit.\n\nParameters:\n"
        "  (1) path (string, required): where\n  (2) lines (array, optional): which\n---- END FUNCTION #1 ----\n"
    )
    call = "<function=edit>\n<parameter=path>\n\na.py\n</parameter>\n<parameter=lines>[1, 2]</parameter>\n</function>"
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "fix"},
        {"role": "assistant", "content": f"I edit.\n\n{call}"},
        {"role": "user", "content": "OBSERVATION:\nok"},
        {"role": "assistant", "content": "<function=edit>\n<parameter=path>b.py</parameter>"},
        {"role": "user", "content": "Your command ran."},
    ]
    found = only(ingest({"messages": messages, "instance_id": "i"}))
    assert found.source == "function-text"
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert found.messages[2].content == "I edit."
    assert found.messages[2].tool_calls[0].arguments == '{"path": "\\na.py", "lines": [1, 2]}'
    assert found.messages[4].tool_calls[0].arguments == '{"path": "b.py"}'
    assert json.loads(found.tools)[0]["function"]["parameters"]["required"] == ["path"]
    assert "function tags that were never closed" in found.notes
    assert "user turns right after a call, read as its result" in found.notes


def test_a_close_tag_inside_a_parameter_does_not_end_it(ingest):
    inner = "x = '</parameter>'\ny"
    messages = [
        {"role": "system", "content": "<function=f>"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": f"<function=f>\n<parameter=a>{inner}</parameter>\n</function>"},
        {"role": "user", "content": "OBSERVATION:"},
    ]
    found = only(ingest({"messages": messages}))
    assert json.loads(found.messages[2].tool_calls[0].arguments) == {"a": inner}


def test_llamafactory_typed_parts_and_loss_weight(ingest):
    rows = [
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "value": "q"}], "loss_weight": 0.0},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "reasoning", "value": "r"},
                        {"type": "text", "value": "t"},
                        {"type": "tool_call", "value": '{"name": "f", "arguments": {"a": [1]}}'},
                    ],
                    "loss_weight": 0.5,
                },
                {"role": "tool", "content": [{"type": "text", "value": "v"}]},
                {"role": "assistant", "content": [{"type": "text", "value": "no"}], "loss_weight": 0.0},
            ],
            "tools": '[{"type": "function", "function": {"name": "f"}}]',
        }
    ] * 2
    trajectories, aside = ingest(lines=rows)
    assert aside == []
    turn = trajectories[0].messages[1]
    assert (turn.reasoning, turn.content, turn.train, turn.weight) == ("r", "t", True, 0.5)
    assert turn.tool_calls[0].arguments == '{"a": [1]}'
    assert trajectories[0].messages[3].train is False
    assert trajectories[0].tools == '[{"type": "function", "function": {"name": "f"}}]'


def test_parquet_rows_with_messages_and_tools(tmp_path):
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([("messages", pa.list_(message)), ("tools", pa.string())])
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"a{n}"}], "tools": "[]"}
        for n in range(70)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "rows")
    found = list(read_file(str(tmp_path / "rows")))
    assert [item.messages[1].content for item in found] == [f"a{n}" for n in range(70)]
    assert found[69].origin.endswith(":row 69")


def test_prompt_and_completion_rows_train_the_completion(ingest):
    row = {
        "prompt": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ],
        "completion": [{"role": "assistant", "content": "d"}],
        "reward": 0.5,
    }
    found = only(ingest(row))
    assert [m.author for m in found.messages] == [None, "copied", None, None]
    assert (found.outcome.reward, found.outcome.success) == (0.5, False)


def test_nulls_that_struct_columns_fill_in_are_removed_from_tools_and_arguments(tmp_path):
    def row(name, argument):
        function = {"name": name, "parameters": {"properties": {argument: {"type": "string"}}}}
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": {argument: "v"}}}
        messages = [
            {"role": "user", "content": "q", "tool_calls": None},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        return {"messages": messages, "tools": [{"type": "function", "function": function}]}

    rows = [row("read", "path"), row("add", "amount")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows")
    first, second = read_file(str(tmp_path / "rows"))
    assert first.messages[1].tool_calls[0].arguments == '{"path": "v"}'
    assert second.messages[1].tool_calls[0].arguments == '{"amount": "v"}'
    assert json.loads(first.tools)[0]["function"]["parameters"] == {"properties": {"path": {"type": "string"}}}
    assert first.notes == ["null keys of struct columns removed from tools and arguments"]
