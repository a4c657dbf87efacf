"""Checkpoints in the shapes that others open: a Hugging Face folder, a plain Llama; GGUF is in `trainer.gguf_file`."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from schemas.errors import UsageError
from schemas.files import read_json, write_json
from trainer.checkpoint import load_model, whole_folder, write_tensors
from trainer.config import LoopedConfig

__all__ = [
    "TYPES",
    "control_ids",
    "export_hf",
    "export_llama",
    "refuse_overflow",
    "refuse_variants",
    "unrolled_tensors",
]

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_TAG = re.compile(r"</?[a-z_]+>")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def export_hf(checkpoint: str | Path, out: str | Path, kind: str = "bf16") -> list[Path]:
    """Write a Hugging Face folder: config.json (model_type nanbeige), model.safetensors, tokenizer, chat template.

    `kind` is f32, bf16 or f16. The official modelling code reads the folder (with transformers 4.51.3; see docs), and
    so does `trainer.checkpoint.load_model`. Raises UsageError for another kind, for a variant of the loop that the
    architecture does not have, or when something lies in `out`; DatamixError when the disk refuses (nothing is left).
    """
    model = load_model(checkpoint)
    refuse_variants(checkpoint, model.config, "hf", allowed=())
    config = dataclasses.replace(model.config, loop_loss_weights=())  # of the training only
    return _write(Path(checkpoint), Path(out), config.to_json(), model.state_dict(), kind)


def export_llama(checkpoint: str | Path, out: str | Path, kind: str = "bf16") -> list[Path]:
    """Write the same function as a plain Llama that has every layer as often as it is run, each weight repeated.

    Exact only where no norm stands between the passes: raises UsageError unless `skip_loop_final_norm` is true or
    there is one pass, for variants other than `loop_middle_layers`, and where the heads do not divide the hidden size,
    which transformers takes for no Llama. Files grow by the number of passes.
    """
    model = load_model(checkpoint)
    config = model.config
    refuse_variants(checkpoint, config, "llama", allowed=("loop_middle_layers",))
    if config.num_loops > 1 and not config.skip_loop_final_norm:
        raise UsageError(
            f"{checkpoint}: skip_loop_final_norm is false, so a norm stands between its {config.num_loops} passes and "
            "no plain Llama computes the same. Export to hf or gguf (architecture nanbeige)"
        )
    if config.hidden_size % config.num_attention_heads:
        raise UsageError(
            f"{checkpoint}: hidden_size {config.hidden_size} is no multiple of its {config.num_attention_heads} heads: "
            "transformers takes no such Llama. Export to hf or gguf (architecture nanbeige)"
        )
    written = {name: value for name, value in config.to_json().items() if "loop" not in name}
    written |= {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": len(_order(config)),
    }
    return _write(Path(checkpoint), Path(out), written, unrolled_tensors(model.state_dict(), config), kind)


def refuse_variants(checkpoint: str | Path, config: LoopedConfig, form: str, allowed: tuple[str, ...]) -> None:
    """Raise UsageError when the model has a variant of the loop, other than `allowed`, that `form` cannot say."""
    refused = [name for name in config.variants if name not in allowed]
    if refused:
        raise UsageError(
            f"{checkpoint}: {' and '.join(refused)} cannot be written as {form}: what reads it would compute something "
            "else. Only datamix itself runs this checkpoint"
        )


def _order(config: LoopedConfig) -> list[int]:
    """Physical layers in the order in which they are run."""
    first, middle, last = config.blocks
    return [*first, *list(middle) * config.num_loops, *last]


def unrolled_tensors(tensors: dict[str, Tensor], config: LoopedConfig) -> dict[str, Tensor]:
    """The state dict with every layer as often as it is run, in that order (pass by pass)."""
    unrolled = {name: tensor for name, tensor in tensors.items() if name.split(".")[1] != "layers"}
    for place, layer in enumerate(_order(config)):
        start = f"model.layers.{layer}."
        for name, tensor in tensors.items():
            if name.startswith(start):
                unrolled[f"model.layers.{place}.{name.removeprefix(start)}"] = tensor.clone()
    return unrolled


def _write(checkpoint: Path, out: Path, config: dict[str, Any], tensors: dict[str, Tensor], kind: str) -> list[Path]:
    if kind not in TYPES:
        raise UsageError(f"type {kind!r} is unknown. Types: {', '.join(TYPES)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: something lies there already. Give a new or an empty folder")
    chosen = TYPES[kind]
    for name, tensor in tensors.items() if kind == "f16" else ():
        refuse_overflow(checkpoint, name, tensor)
    names = [name for name in _TOKENIZER_FILES if (checkpoint / name).is_file()]
    with whole_folder(out, "Make room or give another --out", "the export") as folder:
        write_tensors({name: tensor.to(chosen) for name, tensor in tensors.items()}, folder / "model.safetensors")
        for name in names:
            if name.endswith(".json"):
                raw = _with_visible_tags(read_json(checkpoint / name))
                (folder / name).write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            else:
                shutil.copyfile(checkpoint / name, folder / name)
        # without these ids generation in transformers takes those of Llama
        ends = {f"{name}_token_id": number for name, number in control_ids(checkpoint).items()}
        write_json(folder / "config.json", {**config, **ends, "torch_dtype": str(chosen).removeprefix("torch.")})
    return [out / name for name in ("model.safetensors", *names, "config.json")]


def _with_visible_tags(raw: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer's file in which tags such as <think> and <tool_call> are no special tokens, only ones of their own.

    Others leave special tokens out of the text that they decode (`skip_special_tokens`, the default of servers), and a
    reply without its tags has no calls. Ids stay what they are.
    """
    lists = {"added_tokens": raw.get("added_tokens"), "decoder": list((raw.get("added_tokens_decoder") or {}).values())}
    for token in [token for tokens in lists.values() for token in tokens or []]:
        if _TAG.fullmatch(token["content"]):
            token["special"] = False
    for name in ("additional_special_tokens", "extra_special_tokens"):
        if isinstance(raw.get(name), list):
            raw[name] = [token for token in raw[name] if not (isinstance(token, str) and _TAG.fullmatch(token))]
    return raw


def refuse_overflow(checkpoint: str | Path, name: str, tensor: Tensor) -> None:
    """Raise UsageError when float16 cannot hold the tensor: its largest value would become infinite."""
    largest, most = float(tensor.abs().max()), torch.finfo(torch.float16).max
    if largest > most:
        raise UsageError(f"{checkpoint}: {name} holds {largest:g}, float16 ends at {most:g}. Export it as bf16 or f32")


def control_ids(checkpoint: Path) -> dict[str, int | None]:
    """Ids of the tokens bos, eos and pad that tokenizer_config.json names; {} without a tokenizer."""
    path = checkpoint / "tokenizer_config.json"
    if not path.is_file() or not (checkpoint / "tokenizer.json").is_file():
        return {}
    said = read_json(path)
    ids = {token["content"]: token["id"] for token in read_json(checkpoint / "tokenizer.json").get("added_tokens", [])}
    spelled = {name: said.get(f"{name}_token") for name in ("bos", "eos", "pad")}
    contents = {name: token.get("content") if isinstance(token, dict) else token for name, token in spelled.items()}
    return {name: ids.get(content) for name, content in contents.items()}
