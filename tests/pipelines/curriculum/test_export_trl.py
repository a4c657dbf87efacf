"""With the `hf` extra: TRL trains on an exported shard, and its loss is the one that this project computes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.context import RunContext
from pipelines.curriculum.export import export_shards
from pipelines.curriculum.inspect import read_row
from pipelines.curriculum.shards import shards
from pipelines.synthesis.tokens import TextTokenizer
from schemas.shard import read_index

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


@pytest.fixture
def run(make_run: Callable[..., RunContext]) -> Path:
    context = make_run()
    shards(context)
    return context.run


def tiny_llama(vocab_size: int) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        attn_implementation="sdpa",
    )
    return transformers.LlamaForCausalLM(config).float()


def our_loss(model: Any, folder: Path, stage: str, row: int) -> float:
    """The trainer's own loss of a row, read by its reader, by the looped model with one pass and the same weights."""
    from trainer.config import LoopedConfig
    from trainer.groups import plan_row
    from trainer.model import LoopedTransformer
    from trainer.optimizer import make_optimizer
    from trainer.shards import StageReader
    from trainer.step import StepSettings, gradient_step
    from trainer.world import World

    c = model.config
    ours = LoopedTransformer(
        LoopedConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            num_hidden_layers=c.num_hidden_layers,
            num_loops=1,
            num_attention_heads=c.num_attention_heads,
            num_key_value_heads=c.num_key_value_heads,
            head_dim=c.hidden_size // c.num_attention_heads,
            intermediate_size=c.intermediate_size,
            rope_theta=10_000.0,
            rms_norm_eps=1e-5,
            max_position_embeddings=c.max_position_embeddings,
            tie_word_embeddings=False,
            skip_loop_final_norm=False,
            initializer_range=0.02,
        )
    )
    ours.load_state_dict(model.state_dict())
    index = read_index(folder)
    reader = StageReader(folder, next(s for s in index.stages if s.name == stage), index.vocab_size)
    settings = StepSettings("token-mean", clip_norm=1e9, bf16=False)
    plans = [plan_row(reader[row], index.stages[-1].context_tokens)]
    counts = gradient_step(ours, make_optimizer(ours, 0.0), plans, settings, World(), lambda tokens: None)
    assert counts.loss is not None and counts.left_out_tokens == 0
    return counts.loss


def test_trl_trains_two_steps_and_its_loss_is_ours(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    said = export_shards(run / "shards", tmp_path / "trl", "trl", bpe, stage="sft-1-1024")
    data = datasets.load_dataset("parquet", data_files=said["files"][0], split="train", cache_dir=str(tmp_path / "c"))
    model = tiny_llama(bpe.vocab_size)
    expected = our_loss(model, run / "shards", "sft-1-1024", 0)
    trainer = trl.SFTTrainer(
        model=model,
        processing_class=transformers.AutoTokenizer.from_pretrained(run / "tokenizer"),
        train_dataset=data.select([0, 0]),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            per_device_train_batch_size=1,
            learning_rate=1e-3,
            logging_steps=1,
            max_length=None,
            packing=False,
            padding_free=True,
            bf16=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
        ),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2
    assert losses[0] == pytest.approx(expected, abs=1e-4)
    assert losses[1] < losses[0]


def test_datasets_reads_a_shard_as_it_is(run: Path, tmp_path: Path) -> None:
    files = [str(path) for path in sorted((run / "shards" / "sft-1-1024").glob("*.arrow"))]
    data = datasets.load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    row = read_row(files[0], 0)
    assert data[0]["input_ids"] == row.ids.tolist() and data[0]["loss_mask"] == row.mask.tolist()
    assert data[0]["segment_ids"] == [segment.segment_id for segment in row.segments]


@pytest.mark.parametrize("form", ["xml", "json"])
def test_transformers_gives_the_same_ids_from_the_template(bpe: TextTokenizer, form: str) -> None:
    from pipelines.curriculum.render import render_prompt_ids
    from pipelines.curriculum.template import template_messages
    from pipelines.synthesis.chat import render_messages
    from schemas.trajectory import Message, ToolCall

    messages = [
        Message("system", "S"),
        Message("user", "  hi\n\n🙂"),
        Message("assistant", "x", "r", [ToolCall("c", "run", '{"a": [1, "ü"], "b": "s"}')]),
        Message("tool", "\none"),
        Message("tool", "two "),
        Message("assistant", "done", ""),
    ]
    theirs = transformers.AutoTokenizer.from_pretrained(bpe.folder)
    asked = {"tokenize": True, "return_dict": True, "tool_call_format": form}
    made = theirs.apply_chat_template(template_messages(messages), **asked)["input_ids"]
    assert made == render_prompt_ids(bpe, render_messages(messages, form=form)).tolist()
