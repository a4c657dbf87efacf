"""What an export must not write: other tokens, infinite weights, a size that was not asked for without a word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.synthesis.chat import CONTROL_TOKENS
from schemas.errors import InputError, UsageError
from schemas.files import read_json, write_json
from trainer.checkpoint import CheckpointState, save_checkpoint
from trainer.config import read_config
from trainer.export import export_hf, export_llama
from trainer.gguf_file import export_gguf
from trainer.model import LoopedTransformer
from trainer.optimizer import make_optimizer

VOCAB = 320

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, make_model: Any) -> Save:
    """Save a small model with a byte-level BPE; `change` edits the model, keywords its config."""

    def saved(change: Callable[[LoopedTransformer], None] | None = None, **config: Any) -> Path:
        tokenizer = tmp_path / "tokenizer"
        tokenizer.mkdir()
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=list(CONTROL_TOKENS), initial_alphabet=alphabet, show_progress=False
        )
        made.train_from_iterator(["the cat sat on the mat with the hat"] * 3, trainer)
        made.save(str(tokenizer / "tokenizer.json"))
        write_json(tokenizer / "tokenizer_config.json", {"eos_token": "<|im_end|>"})
        model = make_model(**{"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, **config})
        if change is not None:
            with torch.no_grad():
                change(model)
        state = CheckpointState(1, "sft", "key", {}, 0)
        save_checkpoint(tmp_path / "checkpoint", model, make_optimizer(model, 0.1), state, tokenizer)
        return tmp_path / "checkpoint"

    return saved


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    raw = read_json(path)
    change(raw)
    write_json(path, raw)


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_weights_that_float16_cannot_hold_are_refused_and_bf16_takes_them(
    tmp_path: Path, save: Save, form: str
) -> None:
    pytest.importorskip("gguf")
    large = save(lambda model: model.model.layers[1].mlp.up_proj.weight[0].fill_(70_000.0))
    export = export_hf if form == "hf" else export_gguf
    with pytest.raises(UsageError, match=r"layers\.1\.mlp\.up_proj\.weight holds 70000, float16 ends at 65504"):
        export(large, tmp_path / "half", "f16")
    assert not (tmp_path / "half").exists()
    export(large, tmp_path / "whole", "bf16")


def test_matrices_that_q8_0_cannot_take_are_counted(tmp_path: Path, save: Save) -> None:
    gguf = pytest.importorskip("gguf")
    said: list[str] = []
    odd = save(intermediate_size=72)  # down_proj has rows of 72 values
    reader = gguf.GGUFReader(export_gguf(odd, tmp_path / "m.gguf", "q8_0", said.append))
    assert said == [
        f"{tmp_path / 'm.gguf'}: 2 of 15 matrices are f16, since q8_0 takes rows of a multiple of 32 values only"
    ]
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["blk.0.ffn_down.weight"] == "F16"
    assert kinds["blk.0.ffn_up.weight"] == "Q8_0"
    export_gguf(odd, tmp_path / "f16.gguf", "f16", said.append)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda raw: raw["model"].update(byte_fallback=True), "not a byte-level BPE"),
        (lambda raw: raw.update(pre_tokenizer={"type": "Metaspace", "replacement": "▁"}), "not a byte-level BPE"),
        (lambda raw: raw["model"].update(merges=[]), "not a byte-level BPE"),
        (
            lambda raw: raw.update(
                pre_tokenizer=json.loads(
                    pre_tokenizers.Sequence(
                        [
                            pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s+"), "isolated"),
                            pre_tokenizers.ByteLevel(use_regex=False),
                        ]
                    ).__getstate__()
                )
            ),
            "splits text by a pattern that llama.cpp is not known to have",
        ),
        (lambda raw: raw["model"]["vocab"].update(beyond=VOCAB), f"token {VOCAB}, the model's vocabulary has {VOCAB}"),
    ],
)
def test_a_tokenizer_that_llama_cpp_would_read_otherwise_is_refused(
    tmp_path: Path, save: Save, change: Any, told: str
) -> None:
    pytest.importorskip("gguf")
    checkpoint = save()
    _edit(checkpoint / "tokenizer.json", change)
    with pytest.raises(InputError, match=re.escape(told)):
        export_gguf(checkpoint, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_token_that_is_spelled_with_its_properties_ends_turns_too(tmp_path: Path, save: Save) -> None:
    gguf = pytest.importorskip("gguf")
    checkpoint = save()
    spelled = {"eos_token": {"content": "<|im_end|>", "special": True}, "bos_token": "<|im_start|>"}
    write_json(checkpoint / "tokenizer_config.json", spelled)
    reader = gguf.GGUFReader(export_gguf(checkpoint, tmp_path / "m.gguf"))
    ids = {name: reader.get_field(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "padding")}
    assert ids["bos"].contents() == CONTROL_TOKENS.index("<|im_start|>")
    assert ids["eos"].contents() == CONTROL_TOKENS.index("<|im_end|>")
    assert ids["padding"] is None


@pytest.mark.parametrize("config", [{}, {"eos_token": "<nowhere>"}, None])
def test_no_token_that_ends_a_turn_is_refused(tmp_path: Path, save: Save, config: dict[str, Any] | None) -> None:
    """llama.cpp would take token 11 of the vocabulary for it."""
    pytest.importorskip("gguf")
    checkpoint = save()
    if config is None:
        (checkpoint / "tokenizer_config.json").unlink()
    else:
        write_json(checkpoint / "tokenizer_config.json", config)
    with pytest.raises(InputError, match=r"tokenizer_config\.json: field 'eos_token': names no token"):
        export_gguf(checkpoint, tmp_path / "m.gguf")


def test_tags_of_calls_and_thoughts_stay_in_text_that_others_decode(tmp_path: Path, save: Save) -> None:
    checkpoint = save()
    special = {"additional_special_tokens": ["<|im_start|>", "<think>", "</tool_call>"], "eos_token": "<|im_end|>"}
    write_json(checkpoint / "tokenizer_config.json", special)
    export_hf(checkpoint, tmp_path / "hf")
    before = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    after = Tokenizer.from_file(str(tmp_path / "hf/tokenizer.json"))
    text = "<think>the cat</think><tool_call>sat</tool_call><|im_end|>"
    ids = after.encode(text).ids
    assert ids == before.encode(text).ids
    assert before.decode(ids, skip_special_tokens=True) == "the catsat"
    assert after.decode(ids, skip_special_tokens=True) == "<think>the cat</think><tool_call>sat</tool_call>"
    assert after.get_vocab() == before.get_vocab()
    assert read_json(tmp_path / "hf/tokenizer_config.json") == {
        **special,
        "additional_special_tokens": ["<|im_start|>"],
    }


def test_what_llama_readers_would_not_open_is_refused(tmp_path: Path, save: Save) -> None:
    pytest.importorskip("gguf")
    deep = save(
        num_hidden_layers=9, num_loops=64, skip_loop_final_norm=True, num_attention_heads=3, num_key_value_heads=1
    )
    with pytest.raises(UsageError, match=r"576 layers are run in all passes, llama\.cpp takes 512 at most"):
        export_gguf(deep, tmp_path / "m.gguf")
    with pytest.raises(UsageError, match="hidden_size 32 is no multiple of its 3 heads"):
        export_llama(deep, tmp_path / "llama")
    assert not (tmp_path / "m.gguf").exists() and not (tmp_path / "llama").exists()


@pytest.mark.parametrize("option", ["enable_double_loop_split", "qk_layernorm"])
def test_an_option_of_the_public_code_that_is_on_is_refused_and_off_means_off(save: Save, option: str) -> None:
    folder = save()
    (folder / "state.json").unlink()  # as in a foreign folder
    _edit(folder / "config.json", lambda raw: raw.update({option: True, "loop_middle_layers": 1}))
    with pytest.raises(InputError, match=f"field '{option}': received True, this model has no such option"):
        read_config(folder)
    _edit(folder / "config.json", lambda raw: raw.update({option: False}))
    split = {"loop_middle_layers"} if option != "enable_double_loop_split" else set()
    assert set(read_config(folder).variants) == split
