"""A family in TRL's own trainer: schemas as transformers reads them, and one real GRPO step on a tiny model."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from pipelines.synthesis.adapters.trl import environment_class, task_rows

transformers = pytest.importorskip("transformers")
pytest.importorskip("trl")


def test_transformers_reads_the_families_schemas_off_the_methods() -> None:
    from pipelines.synthesis.adapters.signatures import tool_function
    from pipelines.synthesis.environments.repair import TOOLS

    for tool in TOOLS:
        read = transformers.utils.get_json_schema(tool_function(tool, lambda **arguments: ""))["function"]
        wanted = tool["function"]
        assert (read["name"], read["description"]) == (wanted["name"], wanted["description"])
        properties = wanted["parameters"]["properties"]
        assert set(read["parameters"]["properties"]) == set(properties)
        assert sorted(read["parameters"].get("required", [])) == sorted(wanted["parameters"]["required"])
        for name, schema in properties.items():
            assert read["parameters"]["properties"][name]["type"] == schema["type"]


def test_grpo_takes_a_step_with_a_family_as_its_environment(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from trl import GRPOConfig, GRPOTrainer

    rows = task_rows("reasoning", 2, seed=3, difficulty=(1, 1))
    cls = environment_class("reasoning", rows)
    resets: list[str] = []

    class Watched(cls):  # type: ignore[valid-type, misc]
        def reset(self, task: str, **columns: Any) -> str:
            resets.append(task)
            return super().reset(task, **columns)

    tokenizer = _tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=transformers.Qwen3ForCausalLM(config),
        args=GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
            max_completion_length=8, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        environment_factory=Watched,
    )  # fmt: skip
    names = {tool.__name__ for tool in trainer.tools}
    assert names == {n for n, _ in inspect.getmembers(cls, inspect.isfunction) if n[0] != "_"} - {"reset", "get_reward"}
    trainer.train()
    assert len(resets) == 2
    assert trainer.reward_func_names == ["Watched"]


def _tokenizer() -> Any:
    """A byte-level tokenizer with the chat template of Qwen3, whose tool calls TRL can read."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from trl.chat_template_utils import qwen3_chat_template

    vocabulary = {token: n for n, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = qwen3_chat_template
    return tokenizer
