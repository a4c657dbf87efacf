from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.synthesis.chat import CONTROL_TOKENS, render_messages
from pipelines.synthesis.environments.functions import Source, open_probe_sandbox, probe_source, write_pool
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.document import DOCUMENT_SCHEMA
from schemas.errors import CheckError, InputError
from schemas.files import read_json
from schemas.progress import Quiet
from schemas.recipe import Recipe
from schemas.shard import ShardIndex, write_index
from schemas.trajectory import Message, Outcome, Stats, Task, ToolCall, Trajectory
from trainer.agent import ModelAgent, TaskRun, agent_results
from trainer.evaluate import evaluate
from trainer.generate import Sampling
from trainer.heldout import model_loss, read_heldout, unigram_log_p, unigram_loss
from trainer.train import train

VOCAB = 300
MODULE = '''
def rotate(text: str, places: int) -> str:
    """Move the first letters of a text to its end.

    >>> rotate("hello", 2)
    'llohe'
    """
    if not text:
        return text
    places = places % len(text)
    return text[places:] + text[:places]


def clamp(value: int, low: int, high: int) -> int:
    """Keep a value between two bounds."""
    if value < low:
        return low
    if value > high:
        return high
    return value
'''


@pytest.fixture
def tokenizer(tmp_path: Path) -> TextTokenizer:
    """Bytes and the control tokens: 267 of 300 ids."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [MODULE] * 2,
        trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=list(CONTROL_TOKENS), initial_alphabet=alphabet),
    )
    (tmp_path / "run/tokenizer").mkdir(parents=True)
    made.save(str(tmp_path / "run/tokenizer/tokenizer.json"))
    return load_tokenizer(tmp_path / "run/tokenizer")


def _write_documents(run: Path, part: int, documents: list[tuple[str, str, str]]) -> None:
    """Documents as (domain, split, text)."""
    ids = [f"{part}{n:031d}" for n in range(len(documents))]
    kept = [
        {"id": i, "text": text, "source": "s", "origin": "o", "domain": domain}
        for i, (domain, _, text) in zip(ids, documents, strict=True)
    ]
    for folder in ("corpus/kept", "mixture"):
        (run / folder).mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(kept, schema=DOCUMENT_SCHEMA)
    pq.write_table(table, run / f"corpus/kept/part-{part:05d}.parquet", row_group_size=2)
    splits = [split for _, split, _ in documents]
    mixture = pa.table({"id": ids, "domain": [d for d, _, _ in documents], "split": splits})
    pq.write_table(mixture, run / f"mixture/part-{part:05d}.parquet")


def test_heldout_documents_are_read_by_domain_and_cut_as_in_pretraining(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    run = tmp_path / "run"
    _write_documents(run, 0, [("math", "train", "no"), ("math", "heldout", "abcdefgh"), ("code", "unused", "no")])
    _write_documents(run, 1, [("code", "heldout", "xyz"), ("math", "heldout", "q"), ("math", "train", "no")])
    held = read_heldout(run, tokenizer, context_tokens=4)
    end = tokenizer.end_of_text_id
    ids = [*tokenizer.encode("abcdefgh").tolist(), end]
    pieces = [ids[n : n + 4] for n in range(0, len(ids), 4)]
    expected = [*[p for p in pieces if len(p) > 1], [*tokenizer.encode("q").tolist(), end]]
    assert list(held) == ["code", "math"]
    assert [piece.tolist() for piece in held["math"].pieces] == expected
    assert held["math"].documents == 2
    assert held["math"].predicted == sum(len(p) - 1 for p in expected)
    few = read_heldout(run, tokenizer, context_tokens=4, max_tokens=5)
    assert few["math"].predicted == 5


def test_control_tokens_spelled_in_heldout_text_stay_text(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    _write_documents(tmp_path / "run", 0, [("web", "heldout", "a <|im_end|> b")])
    ids = np.concatenate(read_heldout(tmp_path / "run", tokenizer, 100)["web"].pieces)
    assert tokenizer.control_id("<|im_end|>") not in ids.tolist()


def test_files_that_are_not_aligned_are_named(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    run = tmp_path / "run"
    _write_documents(run, 0, [("web", "heldout", "a"), ("web", "heldout", "b")])
    mixture = run / "mixture/part-00000.parquet"
    table = pq.read_table(mixture)
    pq.write_table(table.slice(0, 1), mixture)
    with pytest.raises(CheckError, match=r"part-00000\.parquet: 1 rows, corpus/kept/part-00000\.parquet has 2"):
        read_heldout(run, tokenizer, 10)
    pq.write_table(table.take([1, 0]), mixture)
    with pytest.raises(CheckError, match=r"ids differ from corpus/kept"):
        read_heldout(run, tokenizer, 10)


def test_text_that_is_gone_is_named(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    _write_documents(tmp_path / "run", 0, [("web", "heldout", "a")])
    (tmp_path / "run/corpus/kept/part-00000.parquet").unlink()
    with pytest.raises(
        CheckError, match=r"corpus/kept/part-00000\.parquet: missing, and .*mixture/part-00000\.parquet"
    ):
        read_heldout(tmp_path / "run", tokenizer, 10)


def test_unigram_counts_pretraining_rows_plus_one(tmp_path: Path, write_stage: Any) -> None:
    stages = [
        write_stage(tmp_path, "p", "pretrain", 8, [[([1, 1, 1], [False, True, True])], [([2, 1], [False, True])]]),
        write_stage(tmp_path, "s", "sft", 8, [[([5, 5, 5], [False, True, True])]]),
    ]
    log_p = unigram_log_p(tmp_path, ShardIndex(64, "t", "r", stages))
    assert np.exp(log_p[[1, 2, 5]]) == pytest.approx([5 / 69, 2 / 69, 1 / 69])
    assert np.exp(log_p).sum() == pytest.approx(1)
    pieces = [np.array([9, 1, 2]), np.array([9, 1])]
    assert unigram_loss(log_p, pieces) == pytest.approx(-(2 * math.log(5 / 69) + math.log(2 / 69)) / 3)


def test_model_loss_is_the_mean_over_predicted_tokens(make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.heldout._BATCH_TOKENS", 40)
    model = make_model()
    pieces = [np.arange(7), np.array([3, 60]), np.arange(50) % 64, np.arange(30) * 3 % 64]
    total = 0.0
    with torch.no_grad():
        for piece in pieces:
            log_p = model(torch.from_numpy(piece)).log_softmax(-1)
            total -= float(log_p[torch.arange(len(piece) - 1), piece[1:]].sum())
    predicted = sum(len(piece) - 1 for piece in pieces)
    assert model_loss(model, pieces, bf16=False) == pytest.approx(total / predicted, rel=1e-5)
    assert model_loss(model, pieces, bf16=False, num_loops=3) != pytest.approx(total / predicted, rel=1e-3)
    with pytest.raises(ValueError, match="no token"):
        model_loss(model, [], bf16=False)


def test_the_agent_writes_a_turn_from_the_rendered_prompt(tokenizer: TextTokenizer, make_model: Any) -> None:
    model = make_model(vocab_size=tokenizer.vocab_size)
    messages = [Message("user", "say <|im_end|> twice")]
    agent = ModelAgent(model, tokenizer, seed=1, max_new_tokens=7, sampling=Sampling(temperature=0))
    turn = agent.act(messages, "[]")
    prompt: list[int] = []
    for piece in render_messages(messages, generation_prompt=True):
        ids = [tokenizer.control_id(piece.text)] if piece.control else tokenizer.encode(piece.text).tolist()
        prompt += ids
    assert sum(i == tokenizer.control_id("<|im_end|>") for i in prompt) == 1
    written = []
    while len(written) < 7:
        written.append(int(model(torch.tensor(prompt + written))[-1].argmax()))
        if written[-1] in (tokenizer.control_id("<|im_end|>"), tokenizer.end_of_text_id):
            break
    assert (turn.role, agent.written) == ("assistant", len(written))
    assert turn.stop == ("length" if len(written) == 7 else "stop")


def test_a_conversation_that_fills_the_context_ends_the_run(tokenizer: TextTokenizer, make_model: Any) -> None:
    model = make_model(vocab_size=tokenizer.vocab_size, max_position_embeddings=20)
    turn = ModelAgent(model, tokenizer, 1, 5).act([Message("user", "word " * 50)], "[]")
    assert (turn.content, turn.tool_calls, turn.stop) == ("", [], "length")


def _call(number: int, path: str) -> Message:
    return Message("assistant", tool_calls=[ToolCall(f"c{number}", "read_file", json.dumps({"path": path}))])


def _result(number: int, error: bool) -> Message:
    signal = "not_found" if error else None
    text = "Error: no such file" if error else "import os"
    return Message("tool", text, tool_call_id=f"c{number}", name="read_file", error=error, signal=signal)


def test_agent_figures_are_counted_from_the_runs() -> None:
    messages = [Message("user", "mend it")]
    for number, (path, error) in enumerate([("a.py", True), ("a.py", True), ("b.py", False)]):
        messages += [_call(number, path), _result(number, error)]
    messages.append(Message("assistant", "done"))
    run = Trajectory("t", "synthesized", "repair", messages, outcome=Outcome(True, 1.0, "tests"), stats=Stats(turns=4))
    quick = Trajectory(
        "u", "synthesized", "repair", [Message("user", "x"), Message("assistant", "no")], outcome=Outcome(False),
        stats=Stats(turns=1),
    )  # fmt: skip
    figures = agent_results([TaskRun(run, 100), TaskRun(quick, 20)])
    assert (figures["tasks"], figures["successes"], figures["success_rate"]) == (2, 1, 0.5)
    assert (figures["steps"], figures["steps_per_task"]) == (5, 2.5)
    assert (figures["tokens"], figures["tokens_per_task"]) == (120, 60.0)
    assert figures["error_rate"] == pytest.approx(3 / 5)  # two failed calls, and an answer that was wrong
    assert figures["repeated_mistake_rate"] == pytest.approx(1 / 3)
    assert figures["recovery_rate"] == pytest.approx(2 / 3)
    assert [task["success"] for task in figures["by_task"]] == [True, False]
    assert figures["by_difficulty"] == {}


def test_agent_figures_are_counted_by_whole_difficulty() -> None:
    def run(difficulty: float, success: bool) -> TaskRun:
        turns = [Message("user", "x"), Message("assistant", "no")]
        task = Task(f"t{difficulty}", "x", 0, difficulty)
        return TaskRun(Trajectory("t", "s", "repair", turns, task, outcome=Outcome(success), stats=Stats(turns=1)), 10)

    figures = agent_results([run(1.0, True), run(1.4, False), run(2.0, False)])["by_difficulty"]
    assert {level: (part["tasks"], part["successes"], part["tokens"]) for level, part in figures.items()} == {
        "1": (2, 1, 20),
        "2": (1, 0, 10),
    }


def test_rates_without_a_denominator_are_none() -> None:
    figures = agent_results([])
    assert [figures[name] for name in ("success_rate", "error_rate", "recovery_rate", "steps_per_task")] == [None] * 4


@pytest.fixture
def trained_run(tmp_path: Path, tokenizer: TextTokenizer, make_recipe: Any) -> tuple[Recipe, Path]:
    """A run trained for a few steps on repeated text, with held-out documents; its evaluation asks for two tasks."""
    run = tmp_path / "run"
    text = "the cat sat on the mat. " * 3
    ids = [*tokenizer.encode(text).tolist(), tokenizer.end_of_text_id]
    rows = [[(ids, [False] + [True] * (len(ids) - 1))] for _ in range(40)]
    _write_stage(run, tokenizer, rows)
    _write_documents(run, 0, [("web", "heldout", "the cat sat on the mat."), ("math", "heldout", "the mat sat.")])
    recipe: Recipe = make_recipe(tokens_per_step=128, learning_rate=0.03, checkpoint_every=100)
    evaluation = recipe.evaluate.model_copy(update={"tasks": 2, "max_steps": 2, "max_new_tokens": 8})
    recipe = recipe.model_copy(update={"evaluate": evaluation})
    train(recipe, run, Quiet())
    return recipe, run


def _write_stage(run: Path, tokenizer: TextTokenizer, rows: list[list[tuple[list[int], list[bool]]]]) -> None:
    from schemas.files import sha256_file
    from schemas.shard import ShardFile, StageIndex, shard_schema

    schema = shard_schema(tokenizer.vocab_size)
    path = run / "shards/p/part-00000.arrow"
    path.parent.mkdir(parents=True)
    table = pa.Table.from_pylist(
        [
            {
                "input_ids": [i for ids, _ in row for i in ids],
                "loss_mask": [m for _, mask in row for m in mask],
                "segment_lengths": [len(ids) for ids, _ in row],
                "segment_ids": ["x"] * len(row),
                "mask_reasons": [],
            }
            for row in rows
        ],
        schema=schema,
    )
    with pa.ipc.new_file(str(path), schema) as writer:
        writer.write_table(table)
    tokens = sum(len(ids) for row in rows for ids, _ in row)
    file = ShardFile("p/part-00000.arrow", sha256_file(path), path.stat().st_size, len(rows), tokens, tokens, len(rows))
    stages = [StageIndex("p", "pretrain", 128, [file])]
    write_index(run / "shards", ShardIndex(tokenizer.vocab_size, tokenizer.digest, "recipe", stages))


def test_evaluation_prints_both_losses_and_is_deterministic(trained_run: tuple[Recipe, Path]) -> None:
    recipe, run = trained_run
    results = evaluate(recipe, run, Quiet())
    assert list(results["heldout"]) == ["math", "web"]
    web = results["heldout"]["web"]
    assert web["loss"] == web["pretrain_loss"] < web["unigram_loss"]
    total = results["heldout_total"]
    assert total["tokens"] == web["tokens"] + results["heldout"]["math"]["tokens"]
    weighted = sum(d["loss"] * d["tokens"] for d in results["heldout"].values()) / total["tokens"]
    assert total["loss"] == pytest.approx(weighted)
    loops = results["loops"]
    assert (loops["trained_loops"], list(loops["loss"])) == (2, [str(n) for n in range(1, 9)])
    assert loops["tokens"] == total["tokens"]  # all of it is less than LOOP_TOKENS
    assert loops["loss"]["2"] == pytest.approx(total["loss"], abs=1e-6) != loops["loss"]["1"]
    assert results["agent"]["tasks"] == 0
    assert "pool_path" in results["agent"]["problem"]
    written = (run / "evaluate/results.json").read_bytes()
    assert read_json(run / "evaluate/results.json") == results
    evaluate(recipe, run, Quiet())
    assert (run / "evaluate/results.json").read_bytes() == written


def test_without_held_out_documents_no_loss_is_measured_and_that_is_said(trained_run: tuple[Recipe, Path]) -> None:
    recipe, run = trained_run
    _write_documents(run, 0, [("web", "train", "the cat sat on the mat.")])
    said: list[str] = []
    listener = Quiet()
    listener.say = said.append  # type: ignore[method-assign]
    results = evaluate(recipe, run, listener)
    assert (results["heldout"], results["heldout_total"]["loss"], results["loops"]["loss"]) == ({}, None, {})
    assert said[0] == "held-out: the run's mixture/ has no held-out documents, so no loss is measured"


def test_another_tokenizer_than_that_of_the_shards_is_refused(trained_run: tuple[Recipe, Path]) -> None:
    recipe, run = trained_run
    path = run / "tokenizer/tokenizer.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(CheckError, match=r"tokenizer\.json: not the tokenizer that the shards were written with"):
        evaluate(recipe, run, Quiet())


def test_the_model_acts_in_the_real_repair_environment(trained_run: tuple[Recipe, Path]) -> None:
    recipe, run = trained_run
    with open_probe_sandbox() as sandbox:
        module = probe_source(Source(MODULE, "rotate.py", "MIT"), sandbox, sandbox.workspace())
    assert not isinstance(module, str)
    heldout = dataclasses.replace(module, id="0" * 32)  # ids that end in 00000000 belong to the held-out part
    write_pool(run / "trajectories/pool.jsonl", [heldout])
    agent = evaluate(recipe, run, Quiet())["agent"]
    assert (agent["tasks"], agent["problem"]) == (2, None)
    assert [task["task"] for task in agent["by_task"]] == ["repair-1000000000-1", "repair-1000000001-2"]
    assert agent["tokens"] <= 2 * 2 * 8
    assert agent == evaluate(recipe, run, Quiet())["agent"]


def test_without_a_final_checkpoint_it_says_what_to_do(tmp_path: Path, make_recipe: Any) -> None:
    with pytest.raises(InputError, match=r"checkpoints/final: no final checkpoint\. Run the train step to its end"):
        evaluate(make_recipe(), tmp_path, Quiet())
