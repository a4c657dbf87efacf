"""A checkpoint of ours, exported as GGUF and served by llama.cpp, is measured as the checkpoint itself is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.curriculum.template import chat_template
from pipelines.synthesis.chat import CONTROL_TOKENS, render_messages
from pipelines.synthesis.tokens import load_tokenizer
from schemas.progress import Quiet
from schemas.recipe import EndpointConfig, EvaluateConfig
from schemas.trajectory import Message
from trainer.agent import run_tasks
from trainer.agent_tasks import agent_results, heldout_tasks, open_heldout
from trainer.checkpoint import CheckpointState, save_checkpoint
from trainer.endpoint import measure_endpoint
from trainer.gguf_file import export_gguf
from trainer.optimizer import make_optimizer


def _tokenizer(folder: Path) -> Path:
    folder.mkdir()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(CONTROL_TOKENS), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["the cat sat on the mat with the hat"] * 3, trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(chat_template("xml"))
    return folder


def test_a_served_checkpoint_does_the_same_tasks_and_gets_the_same_figures(tmp_path: Path, make_model: Any) -> None:
    pytest.importorskip("gguf")
    xllamacpp = pytest.importorskip("xllamacpp")
    tokenizer = _tokenizer(tmp_path / "tokenizer")
    model = make_model(
        vocab_size=320, hidden_size=32, intermediate_size=64, num_loops=2, max_position_embeddings=4096, head_dim=32
    )
    saved = tmp_path / "checkpoint"
    save_checkpoint(saved, model, make_optimizer(model, 0.1), CheckpointState(1, "sft", "key", {}, 0), tokenizer)
    params = xllamacpp.CommonParams()
    params.model.path = str(export_gguf(saved, tmp_path / "m.gguf", "f32"))
    params.n_ctx, params.n_parallel, params.warmup = 4096, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)

    config = EvaluateConfig(tasks=4, family="reasoning", difficulty=(1, 3), max_steps=2, max_new_tokens=12)
    journal = tmp_path / "journal.jsonl"
    settings = EndpointConfig(
        base_url=f"{server.listening_address}/v1", model="ours", journal=str(journal), concurrency=1, temperature=0.6
    )
    served = measure_endpoint(settings, config, ["reasoning"], None, Quiet())
    runs, _ = run_tasks(model, load_tokenizer(tokenizer), config, tmp_path, 1, Quiet())
    own = {"family": "reasoning", **agent_results(runs), "problem": None}

    assert [task["task"] for task in served["agent"]["by_task"]] == [task["task"] for task in own["by_task"]]
    assert list(served["agent"]) == list(own)
    for level, figures in own["by_difficulty"].items():
        assert list(served["agent"]["by_difficulty"][level]) == list(figures)
    assert served["agents"] == {"reasoning": served["agent"]}
    assert 0 < served["agent"]["tokens"] <= 4 * 2 * 12
    assert served["agent"]["tokens"] == served["usage"]["reasoning"]["completion_tokens"]
    assert served["agent"]["successes"] == 0

    # the server sees, token for token, the prompt that the checkpoint itself is given
    known = load_tokenizer(tokenizer)
    first = {line["task"]: line for line in map(json.loads, journal.read_text().splitlines()) if line["turn"] == 0}
    with open_heldout("reasoning", None) as environment:
        for task in heldout_tasks(environment, config):
            messages = [Message("system", task.system), Message("user", environment.reset(task))]
            pieces = render_messages(messages, environment.tools_json(), generation_prompt=True)
            own_prompt = sum(1 if piece.control else len(known.encode(piece.text)) for piece in pieces)
            assert first[task.id]["usage"]["prompt"] == own_prompt
