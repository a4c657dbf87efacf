"""The search family: tools over a real index, verdicts that want answer and proof, a teacher that errs and recovers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from filters.trajectory.detectors import MISTAKE_RULES, detect
from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult, open_environment
from pipelines.synthesis.environments.search import SearchEnvironment, questions_of
from pipelines.synthesis.environments.search_index import SearchIndex
from pipelines.synthesis.environments.search_questions import ABSENT
from pipelines.synthesis.environments.search_tasks import QuestionMaker
from pipelines.synthesis.pools.search import build_search_pool
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from pipelines.synthesis.teachers.search import FOUND
from schemas.errors import InputError, UsageError
from schemas.trajectory import ToolCall, Trajectory


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The running Python's own standard library, through the same door as any corpus."""
    out = tmp_path_factory.mktemp("run") / "trajectories" / "search"
    build_search_pool([], out, standard_library_too=True)
    return out


@pytest.fixture(scope="module")
def environment(pool: Path) -> Iterator[Environment]:
    with open_environment("search", pool_path=pool) as opened:
        yield opened


def play(environment: Environment, seed: int, difficulty: float, rate: float) -> Trajectory:
    task = environment.generate(seed, difficulty)
    return rollout(environment, task, open_teacher("search", environment, task, rate, seed), 3000)


def size(trajectory: Trajectory) -> int:
    calls = sum(len(c.name) + len(c.arguments.encode()) for m in trajectory.messages for c in m.tool_calls)
    texts = sum(len(m.content.encode()) + len((m.reasoning or "").encode()) for m in trajectory.messages)
    return calls + texts + len(trajectory.tools)


def call(environment: Environment, name: str, **arguments: object) -> ToolResult:
    return environment.invoke(ToolCall("c", name, json.dumps(arguments)))


def test_without_mistakes_everything_is_solved_and_lengths_rise(environment: Environment) -> None:
    medians, kinds = [], set()
    for difficulty in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):
        runs = [play(environment, 50 + seed, difficulty, 0.0) for seed in range(3)]
        for trajectory in runs:
            assert (trajectory.outcome.success, trajectory.outcome.reward) == (True, 1.0)
            assert trajectory.stats.errors == 0
            kinds |= {raw["kind"] for raw in json.loads(trajectory.extra or "")["data"]["questions"]}
        medians.append(sorted(map(size, runs))[1] / 4)
    assert medians == sorted(medians)
    assert medians[0] < 2_000
    assert medians[-1] > 150_000
    assert {"default", "constant", "parameters", "file", "chain", "compare", "methods", "count"} <= kinds
    assert {"absent", "absent_parameter"} <= kinds


def test_mistakes_fail_for_real_and_the_detectors_agree(environment: Environment) -> None:
    hits = wrong = missed = 0
    kinds: set[str] = set()
    for seed in range(30):
        trajectory = play(environment, seed, 1 + seed / 8, 0.3)
        blind = replace(trajectory, messages=[replace(m, label=None) for m in trajectory.messages])
        found = {f.message for f in detect(blind).findings if f.rule in MISTAKE_RULES and f.message is not None}
        log = set()
        for index, message in enumerate(trajectory.messages):
            if (message.label or "").startswith("mistake:"):
                log.add(index)
                kinds.add(message.label or "")
                failed = trajectory.messages[index + 1].error if message.tool_calls else not trajectory.outcome.success
                assert failed is True
        assert trajectory.outcome.success is (not (trajectory.messages[-1].label or "").startswith("mistake"))
        hits, wrong, missed = hits + len(found & log), wrong + len(found - log), missed + len(log - found)
        if seed % 6 == 0:
            assert replay(environment, trajectory) == []
            again = play(environment, seed, 1 + seed / 8, 0.3)
            assert json.dumps(again.to_row()) == json.dumps(trajectory.to_row())
    assert hits > 100
    assert hits / (hits + wrong) >= 0.98
    assert hits / (hits + missed) >= 0.98
    assert {"mistake:wrong_document", "mistake:bad_regex", "mistake:empty_query", "mistake:bad_argument"} <= kinds


def test_an_answer_needs_its_documents_and_a_document_no_answer(environment: Environment) -> None:
    task = next(t for t in (environment.generate(s, 3) for s in range(60)) if len(t.data["questions"]) > 2)
    questions = questions_of(task)
    right = "\n".join(f"Answer {n}: {q.answer}" for n, q in enumerate(questions, 1))
    environment.reset(task)
    environment.answer(right)
    assert (environment.verify().success, environment.verify().reward) == (False, 0.5)
    environment.reset(task)
    call(environment, "search", query="class")
    for name in {name for question in questions for name in question.support}:
        call(environment, "open", document=name)
    assert environment.verify().reward == 0.0
    environment.answer(right.replace("Answer 1: ", "Answer 1: not "))
    assert environment.verify().reward == pytest.approx(1 - 1 / len(questions))
    environment.answer(right)
    assert (environment.verify().success, environment.verify().reward) == (True, 1.0)


@pytest.mark.parametrize("given", ["", "Answer: 41", "not in the corpus", "Answer: maybe 42", "Answer 2: 42"])
def test_wrong_or_formless_answers_fail(environment: Environment, given: str) -> None:
    task = environment.generate(4, 1)
    environment.reset(task)
    for name in questions_of(task)[0].support:
        call(environment, "open", document=name)
    call(environment, "search", query="def")
    environment.answer(given)
    assert environment.verify().success is False


def test_what_nothing_says_is_answered_by_saying_so(environment: Environment) -> None:
    tasks = (environment.generate(seed, 3) for seed in range(200))
    question = next(q for t in tasks for q in questions_of(t) if q.kind == "absent")
    assert (question.answer, question.support) == (ABSENT, [])
    name = question.hops[0].query
    assert call(environment, "search", query=name).signal == "empty"


def test_counts_and_chains_are_true_of_the_documents(pool: Path) -> None:
    index = SearchIndex(pool)
    maker = QuestionMaker(index, "all")
    checked = {"count": 0, "chain": 0, "methods": 0}
    for seed in range(60):
        for kind in checked:
            question = maker.question(kind, random.Random(seed), 0.5)
            if question is None:
                continue
            checked[kind] += 1
            texts = [index.text(index.by_name[name]) for name in question.support]
            if kind == "count":
                word = question.text.split("“")[1].split("”")[0]
                found = [re.search(rf"\b{word}\b", text, re.IGNORECASE) is not None for text in texts]
                assert int(question.answer) == sum(found)
            if kind == "chain":
                assert len(set(question.support)) == len(question.hops) >= 2
                assert f"class {question.hops[1].query.split()[-1]}" in texts[1]
    assert min(checked.values()) > 10
    index.close()


@pytest.mark.parametrize(
    ("name", "arguments", "signal"),
    [
        ("search", "", "bad_arguments"),
        ("search", "[]", "malformed_arguments"),
        ("search", '{"query": ""}', "bad_arguments"),
        ("search", '{"query": "..."}', "bad_arguments"),
        ("search", '{"query": "x", "k": 0}', "bad_arguments"),
        ("search", '{"query": "x", "k": 10000}', "bad_arguments"),
        ("search", '{"query": ["x"]}', "bad_arguments"),
        ("open", '{"document": "nope"}', "not_found"),
        ("open", '{"document": "../../etc/passwd"}', "not_found"),
        ("open", '{"document": "GOOD", "page": 999}', "bad_arguments"),
        ("open", '{"document": "GOOD", "page": -1}', "bad_arguments"),
        ("find", '{"document": "GOOD", "pattern": "("}', "bad_arguments"),
        ("find", '{"document": "GOOD", "pattern": "[["}', "bad_arguments"),
        ("find", '{"document": "GOOD", "pattern": "x{100000000}"}', "bad_arguments"),
        ("find", '{"document": "GOOD", "pattern": "((x{99}){99}){99}"}', "bad_arguments"),
        ("find", '{"document": "GOOD"}', "bad_arguments"),
        ("find", '{"document": "nope", "pattern": "x"}', "not_found"),
        ("lookup", "{}", "unknown_tool"),
    ],
)
def test_bad_model_input_ends_as_a_result(environment: Environment, name: str, arguments: str, signal: str) -> None:
    task = environment.generate(4, 1)
    environment.reset(task)
    good = questions_of(task)[0].support[0]
    result = environment.invoke(ToolCall("c", name, arguments.replace("GOOD", good)))
    assert result.error is True
    assert result.signal == ("malformed_arguments" if not arguments else signal)


def test_a_pattern_that_never_ends_is_stopped_and_a_long_query_is_cut(pool: Path) -> None:
    with SearchEnvironment(pool) as environment:
        index = SearchIndex(pool)
        name = index.documents[0].name
        slow = call(environment, "find", document=name, pattern=r"^(\s*\w*\s*)*(\w+\s*)*(.*)*\x00$")
        assert slow.signal in ("timeout", "empty")
        assert call(environment, "search", query="class def " * 40_000).error is False
        index.close()


def test_splits_share_no_document_and_tasks_are_distinct(pool: Path) -> None:
    support: dict[str, set[str]] = {}
    for split in ("train", "heldout"):
        with SearchEnvironment(pool, split=split) as environment:
            tasks = [environment.generate(seed, 1 + seed % 2 * 2) for seed in range(60)]
            assert len({task.instruction for task in tasks}) == 60
            assert environment.generate(7, 3).to_json() == tasks[7].to_json()
            named = {name for t in tasks for q in questions_of(t) if q.kind not in ("bridge",) for name in q.support}
            support[split] = named
    assert not support["train"] & support["heldout"]


def test_wrong_pools_splits_and_difficulties_are_refused(environment: Environment, pool: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs pool_path"):
        SearchEnvironment(None)
    with pytest.raises(UsageError, match="split 'dev'"):
        SearchEnvironment(pool, split="dev")
    with pytest.raises(InputError, match="not a search pool"):
        SearchEnvironment(tmp_path)
    with pytest.raises(UsageError, match="1 to 10"):
        environment.generate(1, 0)
    task = TaskSpec.from_json(environment.generate(1, 1).to_json())
    task.data["questions"][0]["support"] = ["d000000"]
    with pytest.raises(UsageError, match="not in this pool"):
        cast(SearchEnvironment, environment).reset(task)


def test_a_page_is_only_said_to_have_the_place_where_a_find_named_it(environment: Environment) -> None:
    places = 0
    for seed in range(12):
        shown = ""
        for message in play(environment, 300 + seed, 4, 0.2).messages:
            found = re.search(r"(?:Page (\d+) of|read page (\d+) of) (d\w+)", message.reasoning or "")
            if found:
                places += 1
                assert f"of {found[3]} match" in shown
                assert f"page {found[1] or found[2]}, line" in shown
            shown += message.content if message.role == "tool" else ""
    assert places > 5


def test_every_question_is_concluded_in_a_thought(environment: Environment) -> None:
    for seed in range(8):
        trajectory = play(environment, 500 + seed, 3, 0.0)
        questions = questions_of(environment.generate(500 + seed, 3))
        thoughts = [line for m in trajectory.messages for line in (m.reasoning or "").split("\n")]
        wanted = [{text.format(a=q.answer, n=len(q.hops)) for text in FOUND[q.kind]} for q in questions]
        said = [line for line in thoughts if any(line.startswith(tuple(options)) for options in wanted)]
        assert len(said) == len(questions)
