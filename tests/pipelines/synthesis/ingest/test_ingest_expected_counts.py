"""Counts of real files against counts taken straight from them, where the sample data lies beside the repository."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from pipelines.synthesis.ingest import SetAside, read_file

DATA = Path(__file__).parents[4] / "../shared/data/trajectories"
EXPECTED = json.loads((DATA / "expected.json").read_text()) if (DATA / "expected.json").exists() else {}
needs_data = pytest.mark.skipif(not EXPECTED, reason="the sample trajectories are not beside the repository")


@cache
def load(name):
    path = DATA / name
    path = path if path.exists() else path.with_name(path.name + ".zst")
    items = list(read_file(str(path)))
    return (
        [item for item in items if not isinstance(item, SetAside)],
        [item for item in items if isinstance(item, SetAside)],
    )


def of(prefix, *, but=()):
    return [name for name in EXPECTED if name.startswith(prefix) and name not in but]


def messages(name, role=None):
    found = [message for trajectory in load(name)[0] for message in trajectory.messages]
    return [message for message in found if role in (None, message.role)]


def calls(name, *, copied=True):
    return [c for m in messages(name, "assistant") if copied or m.author != "copied" for c in m.tool_calls]


def errors(name):
    return sum(message.error is True for message in messages(name))


def unanswered(name):
    answered = {(id(t), m.tool_call_id) for t in load(name)[0] for m in t.messages if m.role == "tool"}
    return sum((id(t), c.id) not in answered for t in load(name)[0] for m in t.messages for c in m.tool_calls)


@needs_data
def test_every_file_is_read_or_says_why_not():
    silent = [path for path in DATA.rglob("*") if path.is_file() and not list(read_file(str(path)))]
    assert silent == []


@needs_data
@pytest.mark.parametrize("name", of("claude-code/"))
def test_claude_code_counts(name):
    expected = EXPECTED[name]
    assert len(messages(name, "assistant")) == expected["distinct_assistant_message_ids"]
    assert len(calls(name)) == expected["block_tool_use"]
    assert len(messages(name, "tool")) == expected["block_tool_result"]
    assert sum(message.reasoning is not None for message in messages(name)) == expected.get("block_thinking", 0)
    assert errors(name) == expected["is_error"]
    assert unanswered(name) == expected["unanswered_calls"]
    # three lines of one file are no objects, one has no type, one no content, one a text for a message
    assert len(load(name)[1]) == expected.get("non_object_lines", 0) + (3 if "edge_cases" in name else 0)


@needs_data
@pytest.mark.parametrize("name", of("harbor-atif/terminus"))
def test_atif_counts(name):
    expected = EXPECTED[name]
    trajectories, aside = load(name)
    assert aside == []
    if expected["format"] != "ATIF-v1.5":
        assert {t.source for t in trajectories} == {"harbor-traces"}
        return
    assert len(messages(name, "assistant")) == expected["agent_steps"]
    assert len(calls(name)) == expected["tool_calls"]
    copied = [m for m in messages(name) if m.author == "copied"]
    assert len(copied) == expected["copied_context_steps"]
    continued = any("continued_trajectory_ref" in note for note in trajectories[0].notes)
    assert continued is expected["continued"]


@needs_data
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("harbor-atif/rfc__gemini-cli-trajectory.json", "gemini-cli"),
        ("harbor-atif/rfc__mini-swe-agent-trajectory.json", "mini-swe-agent"),
        ("harbor-atif/rfc__openhands_trajectory.json", "openhands"),
        ("swe-agent/str_replace_anthropic_demo.yaml", "swe-agent"),
        ("mini-swe-agent/github_issue.traj.json", "mini-swe-agent"),
        ("mini-swe-agent/local.traj.json", "mini-swe-agent"),
        ("openhands/trajs_basic.json", "openhands"),
        ("openhands/resolver_legacy_output.jsonl", "openhands"),
        ("inspect/browser.json", "inspect"),
        ("inspect/log_images_tc.json", "inspect"),
    ],
)
def test_format_is_found_by_content(name, source):
    trajectories, aside = load(name)
    assert aside == []
    assert {t.source for t in trajectories} == {source}


@needs_data
@pytest.mark.parametrize("name", of("intercode/"))
def test_intercode_counts(name):
    expected = EXPECTED[name]
    trajectories, aside = load(name)
    assert len(trajectories) == expected["trajectories"]
    assert len(calls(name)) == expected["actions"]
    assert errors(name) == expected["invalid_actions"]
    assert sum(t.outcome.reward == 1 for t in trajectories) == expected["max_reward_1"]
    assert len(aside) == (1 if expected["trajectories"] == 0 else 0)
    texts = [
        sum(len(json.loads(c.arguments)["action"]) for m in t.messages for c in m.tool_calls)
        + sum(len(m.content) for m in t.messages if m.role == "tool")
        for t in trajectories
    ]
    assert max(texts, default=0) <= expected["longest_chars"] * 1.02 + 2000
    assert max(texts, default=0) >= expected["longest_chars"] * 0.97 - 2000


@needs_data
@pytest.mark.parametrize("name", of("llama-factory/"))
def test_llama_factory_counts(name):
    expected = EXPECTED[name]
    trajectories, aside = load(name)
    assert (len(trajectories), aside) == (expected["rows"], [])
    roles = Counter(message.role for message in messages(name))
    wanted = Counter()
    for role, count in expected["roles"].items():
        names = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}
        wanted[names.get(role, role)] += count
    assert roles == wanted
    if "function_call" in expected["roles"]:
        assert sum(bool(m.tool_calls) for m in messages(name)) == expected["roles"]["function_call"]


@needs_data
@pytest.mark.parametrize("name", of("openhands/"))
def test_openhands_counts(name):
    for trajectory, expected in zip(load(name)[0], EXPECTED[name]["rows"], strict=True):
        assert trajectory.task.id == expected["instance"]
        assert trajectory.stats.turns == expected["agent_actions"]
        observed = [m for m in trajectory.messages if m.role == "tool" or m.error is not None]
        assert len(observed) == expected["agent_sourced_observations"]
        signals = Counter(m.signal for m in observed if m.signal and m.signal.startswith("exit_code="))
        assert signals == {f"exit_code={code}": count for code, count in expected["run_exit_codes"].items()}
        assert sum((m.signal or "").startswith("error_observation") for m in observed) == expected["error_observations"]
        assert json.loads(trajectory.extra)["finished"] is expected["finished"]


@needs_data
@pytest.mark.parametrize("name", of("pi-agent/"))
def test_pi_counts(name):
    expected = EXPECTED[name]
    assert Counter(m.role for m in messages(name)) == {
        "assistant": expected["role_assistant"],
        "tool": expected["role_toolResult"],
        "user": expected["role_user"],
    }
    assert len(calls(name)) == expected["tool_calls"]
    assert errors(name) == expected["tool_errors"]
    assert unanswered(name) == expected["unanswered_calls"]
    stops = Counter(m.stop for m in messages(name, "assistant"))
    assert stops == {key.removeprefix("stop_"): n for key, n in expected.items() if key.startswith("stop_")}
    empty = [m for m in messages(name, "assistant") if not m.content and not m.tool_calls and not m.reasoning]
    assert len(empty) == expected["empty_assistant"]
    assert sum(m.reasoning is not None for m in messages(name)) == expected["thinking_blocks"]


@needs_data
@pytest.mark.parametrize("name", of("swe-agent/") + of("swe-smith/", but=["swe-smith/ft_xml_example.jsonl"]))
def test_swe_agent_counts(name):
    expected = EXPECTED[name]
    (trajectory,), aside = load(name)
    assert aside == []
    extra = json.loads(trajectory.extra or "{}")
    assert len(trajectory.messages) == expected["history"]
    assert trajectory.stats.turns == expected["history_assistant"]
    assert sum(m.role == "tool" for m in trajectory.messages) == expected["tool_role_messages"]
    assert sum(m.author == "demo" for m in trajectory.messages) == expected["demo_messages"]
    assert extra.get("steps", 0) == expected["steps"]
    assert extra.get("exit_status") == expected["exit_status"]
    assert bool(calls(name)) is expected["has_tool_calls"]


@needs_data
@pytest.mark.parametrize("name", of("swe-smith/ft_xml"))
def test_function_text_counts(name):
    assert [len(t.messages) for t in load(name)[0]] == EXPECTED[name]["messages"]
    assert unanswered(name) == len(load(name)[0])  # the final submit


@needs_data
@pytest.mark.parametrize("name", of("tau-bench/"))
def test_tau_bench_counts(name):
    expected = EXPECTED[name]
    trajectories, aside = load(name)
    assert (len(trajectories), aside) == (expected["trajectories"], [])
    assert len(messages(name)) == expected["messages"]
    for role in ("assistant", "system", "tool", "user"):
        assert len(messages(name, role)) == expected[f"role_{role}"]
    assert len({t.task.id for t in trajectories}) == expected["tasks"]
    assert len(calls(name)) == expected["tool_calls"]
    assert errors(name) == expected["tool_errors"]
    assert sum(t.outcome.success is True for t in trajectories) == expected["reward_1"]
    assert sum(bool(m.tool_calls) and not m.content for m in messages(name)) == expected["null_content_calls"]


@needs_data
@pytest.mark.parametrize("name", of("toolbench/"))
def test_toolbench_counts(name):
    """Every node of the tree is the model's own turn in exactly one trajectory."""
    expected = EXPECTED[name]
    trajectories, aside = load(name)
    assert aside == []
    assert len(calls(name, copied=False)) == expected["Action"]
    codes = Counter()
    for trajectory in trajectories:
        shared = {c.id for m in trajectory.messages if m.author == "copied" for c in m.tool_calls}
        codes.update(m.signal for m in trajectory.messages if m.role == "tool" and m.tool_call_id not in shared)
    wanted = {key.removeprefix("obs_code_"): n for key, n in expected.items() if key.startswith("obs_code_")}
    wanted.pop("None", None)  # the root
    assert codes == {f"observation_code={code}": count for code, count in wanted.items()}
    assert any(t.outcome.success for t in trajectories) is expected["win"]
    finish = [json.loads(t.extra)["finish_type"] for t in trajectories if "finish_type" in (t.extra or "")]
    assert finish == ([expected["finish_type"]] if expected["win"] else [])
