from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.synthesis.chat import CONTROL_TOKENS
from schemas.errors import CheckError, DatamixError, InputError, UsageError
from trainer.checkpoint import CheckpointState, load_model, save_checkpoint
from trainer.config import read_config
from trainer.export import export_hf, export_llama
from trainer.gguf_file import export_gguf
from trainer.model import LoopedTransformer
from trainer.optimizer import make_optimizer

VOCAB = 320
LETTER = 80  # an ASCII letter among the byte tokens
IDS = [20, 41, 33, 7, 90, 200, 33, 41, 19, 250, 64, 64]


@pytest.fixture
def checkpoint(tmp_path: Path, make_model: Any) -> Any:
    """Save a small model with a byte-level BPE as a checkpoint; keywords change its config."""

    def save(**changes: Any) -> tuple[LoopedTransformer, Path]:
        tokenizer = tmp_path / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=list(CONTROL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made.train_from_iterator(["the cat sat on the mat with the hat"] * 3, trainer)
        made.save(str(tokenizer / "tokenizer.json"))
        (tokenizer / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        (tokenizer / "chat_template.jinja").write_text("{{ messages }}")
        values = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, **changes}
        model = make_model(**values)
        state = CheckpointState(1, "sft", "key", {}, 0)
        save_checkpoint(tmp_path / "checkpoint", model, make_optimizer(model, 0.1), state, tokenizer)
        return model, tmp_path / "checkpoint"

    return save


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_a_hugging_face_folder_loads_again(tmp_path: Path, checkpoint: Any, tied: bool, kind: str) -> None:
    model, saved = checkpoint(tie_word_embeddings=tied)
    files = export_hf(saved, tmp_path / "hf", kind)
    assert {path.name for path in files} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    }  # fmt: skip
    dtype = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[kind]
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert (config["model_type"], config["num_loops"], config["torch_dtype"]) == ("nanbeige", 2, dtype)
    assert str(load_file(tmp_path / "hf/model.safetensors")["model.norm.weight"].dtype) == f"torch.{dtype}"
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (None, 2, None)
    modes = {path.stat().st_mode for path in files}
    assert len(modes) == 1  # who may read the tokenizer may read the weights
    ids = torch.tensor(IDS)
    tolerance = 0.0 if kind == "f32" else 0.5
    assert (load_model(tmp_path / "hf")(ids) - model(ids)).abs().max() <= tolerance
    with pytest.raises(UsageError, match="hf: something lies there already"):
        export_hf(saved, tmp_path / "hf", kind)


def test_a_disk_that_is_full_leaves_nothing_of_an_export(
    tmp_path: Path, checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    _, saved = checkpoint()
    monkeypatch.setattr("trainer.checkpoint.save_file", full)
    with pytest.raises(DatamixError, match=r"hf: the export could not be saved .*No space.* give another --out"):
        export_hf(saved, tmp_path / "hf")
    gguf = pytest.importorskip("gguf")
    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(DatamixError, match=r"m\.gguf: could not be written .*No space.* give another --out"):
        export_gguf(saved, tmp_path / "m.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "tokenizer"]


def test_a_folder_with_a_file_of_somebody_is_not_exported_into(tmp_path: Path, checkpoint: Any) -> None:
    _, saved = checkpoint()
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/notes.txt").write_text("mine")
    for out in (tmp_path / "hf", tmp_path / "hf/notes.txt"):
        with pytest.raises(UsageError, match="something lies there already"):
            export_hf(saved, out)
    assert (tmp_path / "hf/notes.txt").read_text() == "mine"


def test_one_changed_byte_of_a_checkpoint_is_seen_by_whoever_loads_it(tmp_path: Path, checkpoint: Any) -> None:
    _, saved = checkpoint()
    weights = saved / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-7] ^= 64
    weights.write_bytes(bytes(data))
    with pytest.raises(CheckError, match=r"model\.safetensors: missing or changed since it was saved"):
        load_model(saved)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_loops", "two"), ("num_loops", 0), ("vocab_size", None), ("num_key_value_heads", 3),
        ("hidden_act", "gelu"), ("rope_theta", []), ("loop_loss_weights", 0.5),
    ],
)  # fmt: skip
def test_a_field_of_the_config_that_means_no_model_is_named(
    tmp_path: Path, make_model: Any, field: str, value: Any
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**make_model().config.to_json(), field: value}))
    with pytest.raises(InputError, match=rf"config\.json: .*{field}"):
        read_config(tmp_path)


def test_a_plain_llama_computes_the_same_where_no_norm_stands_between_passes(tmp_path: Path, checkpoint: Any) -> None:
    model, saved = checkpoint(num_loops=3, skip_loop_final_norm=True)
    export_llama(saved, tmp_path / "llama", "f32")
    config = json.loads((tmp_path / "llama/config.json").read_text())
    assert (config["model_type"], config["architectures"], config["num_hidden_layers"]) == (
        "llama", ["LlamaForCausalLM"], 6,
    )  # fmt: skip
    assert "num_loops" not in config
    plain = LoopedTransformer(type(model.config)(**{**_fields(model), "num_hidden_layers": 6, "num_loops": 1}))
    plain.load_state_dict(load_file(tmp_path / "llama/model.safetensors"))
    assert (plain(torch.tensor(IDS)) - model(torch.tensor(IDS))).abs().max() <= 1e-6


def test_outer_layers_that_run_once_unroll_into_a_plain_llama(tmp_path: Path, checkpoint: Any) -> None:
    model, saved = checkpoint(num_hidden_layers=3, num_loops=2, loop_middle_layers=1, skip_loop_final_norm=True)
    export_llama(saved, tmp_path / "llama", "f32")
    changes = {"num_hidden_layers": 4, "num_loops": 1, "loop_middle_layers": None}
    plain = LoopedTransformer(type(model.config)(**{**_fields(model), **changes}))
    plain.load_state_dict(load_file(tmp_path / "llama/model.safetensors"))
    assert (plain(torch.tensor(IDS)) - model(torch.tensor(IDS))).abs().max() <= 1e-6
    config = json.loads((tmp_path / "llama/config.json").read_text())
    assert config["num_hidden_layers"] == 4 and not [name for name in config if "loop" in name]


@pytest.mark.parametrize("variant", ["loop_share_kv", "loop_input_injection", "loop_middle_layers"])
def test_a_variant_that_a_form_cannot_say_is_refused(tmp_path: Path, checkpoint: Any, variant: str) -> None:
    _, saved = checkpoint(skip_loop_final_norm=True, **{variant: 1 if variant == "loop_middle_layers" else True})
    message = rf"{variant} cannot be written as \w+: what reads it would compute something else"
    with pytest.raises(UsageError, match=message):
        export_hf(saved, tmp_path / "hf")
    if variant != "loop_middle_layers":
        with pytest.raises(UsageError, match=message):
            export_llama(saved, tmp_path / "llama")
    pytest.importorskip("gguf")
    with pytest.raises(UsageError, match=message):
        export_gguf(saved, tmp_path / "m.gguf")
    assert not list(tmp_path.glob("hf/*")) and not (tmp_path / "m.gguf").exists()


def test_weights_of_early_passes_in_the_loss_do_not_stand_in_the_way_of_an_export(
    tmp_path: Path, checkpoint: Any
) -> None:
    model, saved = checkpoint(loop_loss_weights=(0.3,))
    export_hf(saved, tmp_path / "hf", "f32")
    assert torch.equal(load_model(tmp_path / "hf")(torch.tensor(IDS)), model(torch.tensor(IDS)))
    assert "loop_loss_weights" not in json.loads((tmp_path / "hf/config.json").read_text())


def _fields(model: LoopedTransformer) -> dict[str, Any]:
    return {name: getattr(model.config, name) for name in model.config.__dataclass_fields__}


def test_a_norm_between_passes_has_no_plain_llama(tmp_path: Path, checkpoint: Any) -> None:
    _, saved = checkpoint()
    with pytest.raises(UsageError, match="a norm stands between its 2 passes"):
        export_llama(saved, tmp_path / "llama")


def test_unknown_types_are_refused(tmp_path: Path, checkpoint: Any) -> None:
    _, saved = checkpoint()
    with pytest.raises(UsageError, match=r"type 'q4' is unknown\. Types: f32, bf16, f16"):
        export_hf(saved, tmp_path / "hf", "q4")
    with pytest.raises(UsageError, match=r"type 'q4' is unknown\. Types: f32, f16, bf16, q8_0"):
        export_gguf(saved, tmp_path / "m.gguf", "q4")


@pytest.mark.parametrize("broken", ["config", "tensor", "model_type", "weights"])
def test_a_foreign_or_broken_checkpoint_is_named(tmp_path: Path, checkpoint: Any, broken: str) -> None:
    _, saved = checkpoint()
    (saved / "state.json").unlink()  # as in a folder that is not ours
    config = json.loads((saved / "config.json").read_text())
    if broken == "config":
        del config["num_loops"]
    elif broken == "model_type":
        config["model_type"] = "llama"
    elif broken == "tensor":
        config["num_hidden_layers"] = 3
    else:
        (saved / "model.safetensors").write_bytes(b"no tensors")
    (saved / "config.json").write_text(json.dumps(config))
    messages = {
        "config": r"config\.json: field 'num_loops': missing",
        "model_type": r"config\.json: field 'model_type': received 'llama'",
        "tensor": r"model\.safetensors: field 'model\.layers\.2\.[a-z_.]+': tensor missing",
        "weights": r"model\.safetensors: not a safetensors file",
    }
    with pytest.raises(InputError, match=messages[broken]):
        load_model(saved)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
def test_gguf_holds_the_keys_that_llama_cpp_needs(tmp_path: Path, checkpoint: Any, kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    model, saved = checkpoint(skip_loop_final_norm=True)
    reader = gguf.GGUFReader(export_gguf(saved, tmp_path / "m.gguf", kind))
    values = {name: reader.get_field(name).contents() for name in reader.fields if not name.startswith("GGUF.")}
    assert values["general.architecture"] == "nanbeige"
    assert (values["nanbeige.block_count"], values["nanbeige.num_loops"]) == (2, 2)
    assert values["nanbeige.skip_loop_final_norm"] is True
    assert values["tokenizer.ggml.tokens"][:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(values["tokenizer.ggml.tokens"]) == VOCAB
    assert values["tokenizer.ggml.eos_token_id"] == 2
    assert values["tokenizer.chat_template"] == "{{ messages }}"
    names = {tensor.name for tensor in reader.tensors}
    assert {"token_embd.weight", "output_norm.weight", "blk.1.attn_q.weight", "blk.0.ffn_down.weight"} <= names
    assert "output.weight" not in names
    up = next(tensor for tensor in reader.tensors if tensor.name == "blk.0.ffn_up.weight")
    stored = gguf.quants.dequantize(up.data, up.tensor_type)
    wanted = model.model.layers[0].mlp.up_proj.weight.detach().numpy()
    assert abs(stored - wanted).max() <= {"f32": 0, "f16": 1e-3, "bf16": 5e-3, "q8_0": 1e-2}[kind]


@pytest.mark.parametrize("loops", [1, 2, 3])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_llama_cpp_gives_the_same_log_probabilities(
    tmp_path: Path, checkpoint: Any, loops: int, skip: bool, tied: bool
) -> None:
    pytest.importorskip("gguf")
    xllamacpp = pytest.importorskip("xllamacpp")
    model, saved = checkpoint(
        num_loops=loops, skip_loop_final_norm=skip, tie_word_embeddings=tied, max_position_embeddings=256, head_dim=32
    )
    server = _serve(xllamacpp, export_gguf(saved, tmp_path / "m.gguf", "f32"))
    ids = list(IDS)
    for _ in range(6):
        with torch.no_grad():
            log_p = model(torch.tensor(ids))[-1].log_softmax(-1)
        found = _log_probabilities(server, ids)
        assert len(found) > VOCAB - 10
        assert max(abs(float(log_p[token]) - value) for token, value in found.items()) < 1e-3
        ids.append(max(found, key=lambda token: found[token]))
        assert ids[-1] == int(log_p.argmax())


def _log_probabilities(server: Any, ids: list[int]) -> dict[int, float]:
    """llama.cpp's log-probabilities of the token after `ids`, for all that it gives.

    It keeps back what ends in half a character, so it is made to pick a letter; these figures are from before that.
    """
    request = {
        "prompt": ids, "n_predict": 1, "temperature": 0.0, "n_probs": VOCAB, "cache_prompt": False,
        "logit_bias": [[LETTER, 1000]],
    }  # fmt: skip
    address = server.listening_address
    assert address.startswith("http://127.0.0.1:")
    post = urllib.request.Request(
        f"{address}/completion", json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(post, timeout=60) as reply:
        step = json.load(reply)["completion_probabilities"][0]
    return {entry["id"]: entry["logprob"] for entry in step["top_logprobs"]}


def _serve(xllamacpp: Any, path: Path) -> Any:
    """llama.cpp in this process, in float32 and one thread, on a loopback port."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_batch, params.n_parallel = 128, 128, 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    return xllamacpp.Server(params)
