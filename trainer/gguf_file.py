"""GGUF files that llama.cpp opens as architecture `nanbeige` (upstream since ggml-org/llama.cpp#25994).

Written by the `gguf` package (extra `gguf`), which does not know the architecture yet, so its keys are spelled here.
Two traps: llama.cpp turns neighbouring pairs where the weights are for halves, so the rows of Q and K are permuted
as for Llama; and a missing `num_loops` silently means one pass, so the file is read back and compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from schemas.errors import CheckError, DatamixError, InputError, UsageError
from schemas.files import atomic_path, read_json
from trainer.checkpoint import load_model
from trainer.config import LoopedConfig
from trainer.export import control_ids, refuse_overflow, refuse_variants

__all__ = ["GGUF_TYPES", "export_gguf"]

GGUF_TYPES = ("f32", "f16", "bf16", "q8_0")
_ARCHITECTURE = "nanbeige"
_MOST_LAYERS = 512  # LLAMA_MAX_LAYERS; those of every pass count
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_ONE_DIGIT = r"|\\p{N}|"  # as JSON spells the part of qwen2's pattern that tells it: digits one by one
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # llama.cpp's token types


def export_gguf(
    checkpoint: str | Path, out: str | Path, kind: str = "bf16", say: Callable[[str], None] = lambda line: None
) -> Path:
    """Write `out` (a .gguf file, atomically) from a checkpoint folder with its tokenizer.json; returns its path.

    `kind` is f32, f16, bf16 or q8_0; vectors stay f32, and q8_0 leaves matrices whose rows are no multiple of 32 in
    f16, which `say` is told. Raises UsageError for another kind, a variant of the loop that llama.cpp does not have or
    weights too large for f16, InputError for a tokenizer that llama.cpp cannot be told, DatamixError when the gguf
    package is missing, CheckError when what was written does not read back.
    """
    if kind not in GGUF_TYPES:
        raise UsageError(f"type {kind!r} is unknown. Types: {', '.join(GGUF_TYPES)}")
    gguf = _package()
    model = load_model(checkpoint)
    refuse_variants(checkpoint, model.config, "gguf", allowed=())
    run = model.config.num_hidden_layers * model.config.num_loops
    if run > _MOST_LAYERS:
        raise UsageError(f"{checkpoint}: {run} layers are run in all passes, llama.cpp takes {_MOST_LAYERS} at most")
    target = Path(out)
    with _told_when_full(target), atomic_path(target) as temporary:
        writer = gguf.GGUFWriter(temporary, _ARCHITECTURE)
        _add_keys(writer, model.config)
        _add_tokenizer(writer, Path(checkpoint), model.config.vocab_size)
        matrices, halves = 0, 0
        for name, tensor in model.state_dict().items():
            chosen = _chosen(tensor, kind)
            matrices, halves = matrices + (tensor.dim() > 1), halves + (chosen == "f16")
            if chosen == "f16":
                refuse_overflow(checkpoint, name, tensor)
            _add_tensor(gguf, writer, _gguf_name(name), _llama_rows(name, tensor, model.config), chosen)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        _read_back(gguf, temporary, model.config, target)
    if kind == "q8_0" and halves:
        say(f"{target}: {halves} of {matrices} matrices are f16, since q8_0 takes rows of a multiple of 32 values only")
    return target


@contextmanager
def _told_when_full(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DatamixError(f"{target}: could not be written ({error}). Make room or give another --out") from error


def _package() -> Any:
    try:
        import gguf
    except ImportError:
        raise DatamixError("the package gguf is missing. Install it with: pip install 'datamix[gguf]'") from None
    return gguf


def _add_keys(writer: Any, config: LoopedConfig) -> None:
    integers = {
        "block_count": config.num_hidden_layers,  # physical layers
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
        "vocab_size": config.vocab_size,
        "num_loops": config.num_loops,
    }
    for name, value in integers.items():
        writer.add_uint32(f"{_ARCHITECTURE}.{name}", value)
    writer.add_float32(f"{_ARCHITECTURE}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{_ARCHITECTURE}.rope.freq_base", config.rope_theta)
    writer.add_bool(f"{_ARCHITECTURE}.skip_loop_final_norm", config.skip_loop_final_norm)


def _add_tokenizer(writer: Any, checkpoint: Path, vocab_size: int) -> None:
    """The byte-level BPE of tokenizer.json; ids that it does not name become unused tokens."""
    path = checkpoint / "tokenizer.json"
    try:
        raw = read_json(path)
    except FileNotFoundError:
        raise InputError("no such file", path=str(path), todo="A GGUF file carries its tokenizer") from None
    pre = _pre_tokenizer(raw, path)
    control = {token["id"]: token["content"] for token in raw.get("added_tokens", [])}
    spelled = {index: token for token, index in raw["model"]["vocab"].items()} | control
    if max(spelled) >= vocab_size:
        problem = f"token {max(spelled)}, the model's vocabulary has {vocab_size}"
        raise InputError(problem, path=str(path), field="model.vocab", todo="It is another model's tokenizer")
    tokens = [spelled.get(index, f"<unused{index}>") for index in range(vocab_size)]
    types = [_CONTROL if i in control else _NORMAL if i in spelled else _UNUSED for i in range(vocab_size)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in raw["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    ids = control_ids(checkpoint)
    if ids.get("eos") is None:  # llama.cpp would take token 11 for it, whatever that is
        problem = "names no token of tokenizer.json that ends a turn"
        place = str(checkpoint / "tokenizer_config.json")
        raise InputError(problem, path=place, field="eos_token", todo="Name one, such as <|im_end|>")
    for name, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        if ids[name] is not None:
            add(ids[name])
    writer.add_add_bos_token(False)
    template = checkpoint / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text(encoding="utf-8"))


def _pre_tokenizer(raw: dict[str, Any], path: Path) -> str:
    """llama.cpp's name for the way text is split before the merges, which it knows for some patterns only.

    Raises InputError for a tokenizer that is no byte-level BPE or splits in a way without a name here: llama.cpp would
    load it and give other tokens than the model was trained on.
    """
    model, spelled = raw["model"], json.dumps(raw.get("pre_tokenizer") or {})
    if (
        model.get("type") != "BPE"
        or not model.get("merges")
        or model.get("byte_fallback")
        or "ByteLevel" not in spelled
    ):
        raise InputError("not a byte-level BPE with merges", path=str(path), field="model", todo="llama.cpp needs one")
    if _ONE_DIGIT in spelled:
        return "qwen2"
    if '"Split"' in spelled or '"Digits"' in spelled or '"use_regex": false' in spelled:
        problem = "splits text by a pattern that llama.cpp is not known to have"
        raise InputError(problem, path=str(path), field="pre_tokenizer", todo="Export to hf instead")
    return "gpt-2"


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _TOP_NAMES:
        return f"{_TOP_NAMES[stem]}.weight"
    _, _, number, inner = stem.split(".", 3)
    return f"blk.{number}.{_LAYER_NAMES[inner]}.weight"


def _llama_rows(name: str, tensor: Tensor, config: LoopedConfig) -> np.ndarray[Any, Any]:
    """Float32 rows; those of Q and K as llama.cpp wants them: halves of a head interleaved."""
    array: np.ndarray[Any, Any] = tensor.detach().float().numpy()
    for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
        if part in name:
            halves = array.reshape(heads, 2, config.head_dim // 2, array.shape[1])
            array = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))
    return array


def _chosen(tensor: Tensor, kind: str) -> str:
    """How a tensor is written in a file of `kind`."""
    if tensor.dim() == 1:
        return "f32"
    return "f16" if kind == "q8_0" and tensor.shape[-1] % 32 else kind


def _add_tensor(gguf: Any, writer: Any, name: str, array: np.ndarray[Any, Any], chosen: str) -> None:
    quantization = getattr(gguf.GGMLQuantizationType, chosen.upper())
    if chosen in ("bf16", "q8_0"):
        writer.add_tensor(name, gguf.quants.quantize(array, quantization), raw_dtype=quantization)
    else:
        writer.add_tensor(name, array.astype(np.float16 if chosen == "f16" else np.float32))


def _read_back(gguf: Any, path: Path, config: LoopedConfig, target: Path) -> None:
    """Raises CheckError unless passes, norm setting and the number of tensors are in the file."""
    reader = gguf.GGUFReader(path)
    found = {}
    for key in ("num_loops", "skip_loop_final_norm", "block_count"):
        field = reader.get_field(f"{_ARCHITECTURE}.{key}")
        found[key] = None if field is None else field.contents()
    wanted = {
        "num_loops": config.num_loops,
        "skip_loop_final_norm": config.skip_loop_final_norm,
        "block_count": config.num_hidden_layers,
    }
    tensors = 9 * config.num_hidden_layers + (2 if config.tie_word_embeddings else 3)
    if found != wanted or len(reader.tensors) != tensors:
        raise CheckError(f"{target}: reads back as {found} with {len(reader.tensors)} tensors, not {wanted}, {tensors}")
