"""Bad input: each case has a stated result, and one bad record never hides the others."""

import json
import zlib

import pytest

from pipelines.synthesis.ingest import SetAside, find_files, ingest_paths, read_file
from schemas.errors import InputError, UsageError


def chat(*messages, **row):
    return {"messages": [{"role": "user", "content": "go"}, *messages], **row}


def calls(*made, content=""):
    return {"role": "assistant", "content": content, "tool_calls": list(made)}


def call(identity, arguments="{}", name="f"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def reply(identity, content="ok"):
    made = {"role": "tool", "content": content}
    return made if identity is None else {**made, "tool_call_id": identity}


def bound(trajectory):
    return [(m.tool_call_id, m.content) for m in trajectory.messages if m.role == "tool"]


def test_arguments_that_are_not_json_stay_as_the_model_wrote_them(ingest):
    (found,), aside = ingest(
        chat(calls(call("a", '{"x": 1,'), call("b", '"only a string"'), call("c", "")), reply("a"))
    )
    assert aside == []
    assert [c.arguments for c in found.messages[1].tool_calls] == ['{"x": 1,', '"only a string"', ""]


def test_a_call_id_used_again_binds_to_the_latest_open_call(ingest):
    row = chat(calls(call("a")), reply("a", "1"), calls(call("a")), reply("a", "2"), calls(call("a"), call("a")),
               reply("a", "3"), reply("a", "4"))  # fmt: skip
    (found,), _ = ingest(row)
    identities = [c.id for m in found.messages for c in m.tool_calls]
    assert len(set(identities)) == 4
    assert bound(found) == list(zip(identities, "1234", strict=True))
    assert found.notes == ["call ids used again, made unique: 3"]


def test_missing_call_ids_are_paired_by_position_and_name(ingest):
    row = chat(
        calls(call(None, name="f"), call(None, name="g")),
        {"role": "tool", "name": "g", "content": "of g"},
        {"role": "tool", "content": "of f"},
    )
    (found,), _ = ingest(row)
    first, second = found.messages[1].tool_calls
    assert bound(found) == [(second.id, "of g"), (first.id, "of f")]
    assert "results paired with calls by position: 2" in found.notes


def test_results_before_their_call_stay_where_they_are_and_are_noted(ingest):
    (found,), _ = ingest(chat(reply("a", "early"), calls(call("a"))))
    assert [m.role for m in found.messages] == ["user", "tool", "assistant"]
    assert found.notes == ["results that answer no call before them"]


def test_a_second_result_and_an_orphan_are_noted(ingest):
    (found,), _ = ingest(chat(calls(call("a")), reply("a", "1"), reply("a", "2"), reply("zz"), reply(None)))
    assert found.notes == [
        "results for a call that already has one",
        "results that answer no call before them",
        "results without an id that answer no open call",
    ]


def test_lines_that_are_no_objects_are_set_aside_one_by_one(ingest):
    good = chat({"role": "assistant", "content": "a"})
    trajectories, aside = ingest(lines=[good, '"text"', "42", "null", "[1, 2]", "{}", '{"broken": ', good])
    assert [t.origin.rpartition(":")[2] for t in trajectories] == ["line 1", "line 8"]
    assert [item.record for item in aside] == [f"line {n}" for n in range(2, 8)]
    assert {item.problem for item in aside[:5]} == {"no reader recognises this record"}
    assert aside[5].problem.startswith("not JSON")


@pytest.mark.parametrize("row", [{"messages": []}, {"messages": [], "tools": []}])
def test_a_run_without_messages_is_set_aside(ingest, row):
    trajectories, aside = ingest(lines=[row, chat()])
    assert len(trajectories) == 1
    assert [(item.field, item.problem) for item in aside] == [("messages", "the run has no messages")]


def test_two_hundred_equal_calls_in_one_step_are_kept_and_answered_in_order(ingest):
    made = [call(None, '{"x": 1}') for _ in range(200)]
    (found,), _ = ingest(chat(calls(*made), *[reply(None, str(n)) for n in range(200)]))
    identities = [c.id for c in found.messages[1].tool_calls]
    assert len(set(identities)) == 200
    assert bound(found) == [(identity, str(n)) for n, identity in enumerate(identities)]
    assert found.stats.turns == 1


def test_a_million_character_observation_is_kept_whole(ingest):
    found = ingest(lines=[chat(calls(call("a")), reply("a", "x" * 1_000_000)), chat()])[0][0]
    assert len(found.messages[2].content) == 1_000_000


def test_an_unknown_role_sets_the_record_aside_by_name(ingest):
    trajectories, aside = ingest(lines=[chat({"role": "narrator", "content": "x"}), chat()])
    assert len(trajectories) == 1
    assert aside[0].field == "messages[1].role"
    assert aside[0].received == "narrator"
    assert "assistant" in aside[0].problem


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("text", "messages[1]"),
        ({"role": "assistant", "content": 7}, "messages[1].content"),
        ({"role": "assistant", "content": "", "tool_calls": "no"}, "messages[1].tool_calls"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}, "messages[1].tool_calls[0].name"),
        ({"role": "user", "content": "", "tool_calls": [call("a")]}, "messages[1].tool_calls"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "messages[1].content[0]"),
    ],
)
def test_a_malformed_message_names_its_field(ingest, message, field):
    trajectories, aside = ingest(lines=[chat(message), chat()])
    assert len(trajectories) == 1
    assert aside[0].field == field


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_half_a_file_gives_what_is_whole(ingest, tmp_path, share):
    rows = [chat({"role": "assistant", "content": f"answer {n}"}) for n in range(20)]
    for text in (json.dumps(rows), "".join(json.dumps(row) + "\n" for row in rows)):
        trajectories, aside = ingest(text[: int(len(text) * share)])
        assert 20 * share - 2 <= len(trajectories) <= 20 * share
        assert len(aside) == 1
        assert "JSON" in aside[0].problem


def test_half_of_one_object_is_one_row_set_aside(ingest):
    text = json.dumps({"trajectory": [], "history": [{"role": "user", "content": "x" * 500}], "info": {}})
    trajectories, aside = ingest(text[:300])
    assert trajectories == []
    assert [item.problem.split(":")[0] for item in aside] == ["not JSON"]


@pytest.mark.parametrize("records", [40, 5000])
@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_a_cut_compressed_file_gives_every_whole_record_and_says_where_it_ends(tmp_path, pack, records):
    import gzip
    import random

    import zstandard

    words = random.Random(3)
    lines = [
        json.dumps(chat({"role": "assistant", "content": "".join(words.choices("abcdefghijklmnop ", k=300))}))
        for _ in range(records)
    ]
    body = ("\n".join(lines) + "\n").encode()
    packed = (gzip.compress if pack == "gzip" else zstandard.compress)(body)
    cut = packed[: len(packed) * 9 // 10]
    (tmp_path / "cut").write_bytes(cut)
    decoder = zlib.decompressobj(31) if pack == "gzip" else zstandard.ZstdDecompressor().decompressobj()
    whole = decoder.decompress(cut).count(b"\n")
    *given, last = read_file(str(tmp_path / "cut"))
    assert [item.messages[1].content for item in given] == [
        json.loads(line)["messages"][1]["content"] for line in lines[:whole]
    ]
    assert whole > 0 or pack == "zstd"  # a small zstd file is one block
    assert isinstance(last, SetAside)
    assert last.problem == "the file cannot be read to its end: the compressed data ends early"


def test_nan_lone_surrogates_and_bytes_that_are_not_utf8_are_repaired_and_noted(ingest, tmp_path):
    path = tmp_path / "odd"
    line = json.dumps(chat({"role": "assistant", "content": "A"}))
    path.write_bytes(
        line.replace('"A"', '"\\ud83d"').encode() + b"\n"
        + line.replace('"A"', '"A", "score": NaN').encode() + b"\n"
        + line.encode().replace(b'"A"', b'"\xff"') + b"\n"
    )  # fmt: skip
    found = list(read_file(str(path)))
    assert [item.messages[1].content for item in found] == ["\ufffd", "A", "\ufffd"]
    assert [item.notes for item in found] == [
        ["lone surrogates replaced by U+FFFD"],
        ["NaN read as null"],
        ["bytes that are not UTF-8 replaced by U+FFFD"],
    ]


def test_a_record_of_an_unexpected_shape_is_set_aside_not_a_crash(ingest):
    value = {"schema_version": "ATIF-v1.5", "agent": 3, "steps": [{"step_id": 1, "source": "agent", "message": "a",
             "tool_calls": 7}]}  # fmt: skip
    trajectories, aside = ingest(value)
    assert trajectories == []
    assert aside[0].format == "atif"


def test_license_and_readme_are_reported_as_no_trajectories(tmp_path):
    (tmp_path / "LICENSE").write_text("MIT License\n\nCopyright (c)")
    (tmp_path / "README.md").write_text("# Data\n\nhistory: none")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "numbers.json").write_text('{"a": 1}')
    found = list(ingest_paths([tmp_path]))
    assert [item.problem.split(":")[0] for item in found] == [
        "not a trajectory file",
        "not a trajectory file",
        "the file is empty",
        "no reader recognises this record",
    ]


@pytest.mark.parametrize("text", ["[]", "{}", "[ ]\n", "[[]]", "\n\n"])
def test_a_file_without_a_record_says_so(ingest, text):
    trajectories, aside = ingest(text)
    assert trajectories == []
    assert len(aside) == 1


def test_mixed_formats_in_one_file_are_read_row_by_row(ingest):
    sharegpt = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    trajectories, aside = ingest(lines=[chat(), sharegpt, chat()])
    assert aside == []
    assert [t.source for t in trajectories] == ["openai", "sharegpt", "openai"]


def test_a_fixed_format_reads_with_that_reader_only(ingest):
    trajectories, aside = ingest(lines=[chat(), {"messages_display": "user: q"}], format="openai")
    assert len(trajectories) == 1
    assert aside[0].format == "openai"


def test_unknown_formats_and_missing_paths_are_refused(tmp_path):
    with pytest.raises(UsageError, match="openhands"):
        list(ingest_paths([tmp_path], format="opnhands"))
    with pytest.raises(InputError, match="no such file"):
        find_files([tmp_path / "missing"])
    with pytest.raises(InputError, match="no such file"):
        find_files([f"{tmp_path}/*.jsonl"])


def test_files_come_in_sorted_order_each_once_without_hidden_ones(tmp_path):
    for name in ("b.json", "a/z.json", "a/c.json", ".git/x.json", "a/.hidden"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = find_files([tmp_path, tmp_path / "b.json", f"{tmp_path}/**/*.json"])
    assert found == [f"{tmp_path}/a/c.json", f"{tmp_path}/a/z.json", f"{tmp_path}/b.json"]


def test_reading_is_deterministic_and_ids_differ_by_content(ingest):
    rows = [chat({"role": "assistant", "content": f"{n}"}) for n in range(5)]
    first, _ = ingest(lines=rows)
    second, _ = ingest(lines=rows)
    assert [t.id for t in first] == [t.id for t in second]
    assert len({t.id for t in first}) == 5


def test_a_byte_order_mark_before_a_single_record_is_skipped(tmp_path):
    path = tmp_path / "bom.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(chat(calls(content="hi"))).encode() + b"\n")
    (found,) = read_file(str(path))
    assert [m.content for m in found.messages] == ["go", "hi"]


def test_content_that_is_an_object_without_text_is_set_aside_and_not_emptied(ingest):
    found, (aside,) = ingest(chat({"role": "assistant", "content": {"answer": 42}}))
    assert found == []
    assert (aside.field, aside.problem) == ("messages[1].content[0]", "a content part must have a type or a text")


def test_a_refusal_beside_null_content_is_what_the_model_said(ingest):
    (found,), _ = ingest(chat({"role": "assistant", "content": None, "refusal": "I cannot."}))
    assert found.messages[1].content == "I cannot."
    assert found.notes == ["refusals, taken as the content"]


def test_thinking_blocks_beside_the_content_are_the_reasoning(ingest):
    blocks = [{"type": "thinking", "thinking": "deep", "signature": "x"}, {"type": "redacted_thinking", "data": "z"}]
    (found,), _ = ingest(chat({"role": "assistant", "content": "look", "thinking_blocks": blocks}))
    assert (found.messages[1].reasoning, found.messages[1].content) == ("deep", "look")


def test_a_reward_that_is_no_finite_number_is_an_unknown_outcome(ingest):
    (found,), _ = ingest('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],'
                         ' "reward": 1e999}')  # fmt: skip
    assert (found.outcome.success, found.outcome.reward) == (None, None)


@pytest.mark.parametrize("legacy", ["auto", {"name": None, "arguments": "{}"}, ["f"]])
def test_a_legacy_call_without_a_name_is_set_aside(ingest, legacy):
    found, (aside,) = ingest(chat({"role": "assistant", "content": None, "function_call": legacy}))
    assert found == []
    assert aside.field == "messages[1].function_call"


def test_a_legacy_call_beside_newer_ones_is_named_and_one_of_nulls_is_none(ingest):
    both = {**calls(call("a")), "function_call": {"name": "g", "arguments": "{}"}}
    (found,), _ = ingest(chat(both, reply("a")))
    assert [c.name for c in found.messages[1].tool_calls] == ["f"]
    assert found.notes == ["function_call beside tool_calls, left out"]
    nulls = {"role": "assistant", "content": "x", "function_call": {"name": None, "arguments": None}}
    (plain,), aside = ingest(chat(nulls))
    assert (plain.messages[1].tool_calls, plain.notes, aside) == ([], [], [])


@pytest.mark.parametrize(("key", "value"), [("weight", "x"), ("train", "false"), ("loss_mask", [0, 1])])
def test_a_mask_field_that_cannot_be_read_sets_the_record_aside(ingest, key, value):
    turn = {"role": "assistant", "content": "a"}
    trajectories, aside = ingest([chat({**turn, key: value}), chat({**turn, key: None}), chat(turn)])
    assert [item.messages[1].train for item in trajectories] == [None, None]
    assert [(item.field, "must be a boolean or a number" in item.problem) for item in aside] == [(key, True)]
