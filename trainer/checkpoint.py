"""Checkpoints: folders that are whole or absent, without pickle, that other readers of `nanbeige` models open.

    step-N/  model.safetensors   weights in float32, names as in trainer.model
             config.json         model_type nanbeige
             optimizer.safetensors, state.json     what a resume needs
             tokenizer.json, …   copied from the run

`pretrain` and `final` hold the same without the optimizer. A folder is written under a temporary name, every file
fsynced, and renamed, so a crash leaves either all of it or nothing that counts.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from schemas.errors import CheckError, DatamixError, InputError
from schemas.files import TEMPORARY_PREFIX, digest_of, read_json, sha256_file, write_json
from trainer.config import LoopedConfig, read_config
from trainer.model import LoopedTransformer
from trainer.optimizer import load_optimizer_state, optimizer_tensors
from trainer.sharding import slice_like, whole

__all__ = [
    "CheckpointState",
    "is_whole",
    "latest_checkpoint",
    "load_model",
    "prune_checkpoints",
    "publish_checkpoint",
    "read_state",
    "remove",
    "restore",
    "save_checkpoint",
    "step_folder",
    "whole_folder",
    "write_tensors",
]

_VERSION = "1"
_STEP = re.compile(r"step-(\d+)")
_GO_ON = "Mend that and run again: training goes on from the last whole checkpoint"
_WEIGHTS, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(slots=True)
class CheckpointState:
    """What a resume needs beside tensors.

    `step` optimizer steps are done; `key` names the recipe and shards they were done with; `loader` is the loader's
    state; `metrics_bytes` is the length of metrics.jsonl then; `precision` is fp32 or bf16 ("" in checkpoints that were
    written before recipes could leave the choice to the device); `made_with` spells out what `key` is the digest of
    ({} where that was not written down); `files` maps the other files to their SHA-256; `digest` is that of the fields
    before it.
    """

    step: int
    phase: str
    key: str
    loader: dict[str, Any]
    metrics_bytes: int
    precision: str = ""
    made_with: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    version: str = _VERSION
    digest: str = ""

    def sealed(self) -> dict[str, Any]:
        """As JSON, with the digest of everything else."""
        content = {key: value for key, value in asdict(self).items() if key != "digest"}
        for name in ("precision", "made_with"):
            if not content[name]:
                del content[name]
        return {**content, "digest": digest_of(content)}


def step_folder(folder: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lies."""
    return folder / f"step-{step}"


def _steps(folder: Path) -> list[tuple[int, Path]]:
    found = [(_STEP.fullmatch(path.name), path) for path in (folder.iterdir() if folder.is_dir() else ())]
    return sorted((int(match[1]), path) for match, path in found if match and path.is_dir())


def latest_checkpoint(folder: Path) -> Path | None:
    """The step-N folder with the highest N, or None."""
    steps = _steps(folder)
    return steps[-1][1] if steps else None


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete all step-N folders but the last `keep`."""
    for _, path in _steps(folder)[:-keep]:
        doomed = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
        path.rename(doomed)  # a crash inside rmtree must not leave half a step-N
        remove(doomed)


def remove(path: Path) -> None:
    """Delete a file, a folder, or a link (never what it points to)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def save_checkpoint(
    target: Path,
    model: LoopedTransformer,
    optimizer: torch.optim.Optimizer,
    state: CheckpointState,
    tokenizer: Path | None = None,
    leads: bool = True,
) -> None:
    """Write `target` atomically; `tokenizer` is a folder whose files are copied into it.

    All processes of a sharded model must call it, to put tensors together; the one that `leads` writes.

    Raises DatamixError when the disk refuses (full, read-only): nothing half-written is left.
    """
    weights = {name: whole(tensor) for name, tensor in model.named_parameters()}
    moments = optimizer_tensors(model, optimizer)
    if not leads:
        return
    with whole_folder(target, _GO_ON) as folder:
        write_tensors(weights, folder / _WEIGHTS)
        write_tensors(moments, folder / _OPTIMIZER)
        write_json(folder / "config.json", model.config.to_json())
        for source in sorted(tokenizer.iterdir()) if tokenizer and tokenizer.is_dir() else []:
            if source.is_file() and not source.name.startswith("."):
                shutil.copyfile(source, folder / source.name)
        state.files = {path.name: sha256_file(path) for path in sorted(folder.iterdir())}
        write_json(folder / _STATE, state.sealed())


def publish_checkpoint(source: Path, target: Path) -> None:
    """Make `target` the same model as checkpoint `source`, without its optimizer, by hard links where they exist."""
    state = read_state(source)
    state.files.pop(_OPTIMIZER, None)
    with whole_folder(target, _GO_ON) as folder:
        for path in sorted(source.iterdir()):
            if path.name in (_OPTIMIZER, _STATE):
                continue
            try:
                os.link(path, folder / path.name)
            except OSError:
                shutil.copyfile(path, folder / path.name)
        write_json(folder / _STATE, state.sealed())


def read_state(folder: Path) -> CheckpointState:
    """Read `folder/state.json`.

    Raises CheckError when it is missing, broken, of a newer version, or not of the step that names a step-N folder: the
    highest N is what training goes on from and the lowest are deleted, so a copy under another number loses work.
    """
    path = folder / _STATE
    try:
        raw = read_json(path)
        if int(raw["version"]) > int(_VERSION):
            raise CheckError(f"{path}: version {raw['version']} is newer than {_VERSION}. Update datamix")
        state = CheckpointState(**raw)
        if state.digest != state.sealed()["digest"]:
            raise ValueError("its content differs from the digest in it")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckError(f"{path}: not the state of a checkpoint ({error}). Delete the folder {folder}") from None
    named = _STEP.fullmatch(folder.name)
    if named and int(named[1]) != state.step:
        raise CheckError(
            f"{folder}: holds the checkpoint after {state.step} steps, so it was renamed or copied by hand. "
            f"Name it step-{state.step} again, or move it elsewhere"
        )
    return state


def is_whole(folder: Path, key: str) -> bool:
    """Whether `folder` holds a checkpoint of the training `key`, every file as it was saved."""
    try:
        state = read_state(folder)
        for name in state.files:
            _check_file(folder / name, state)
    except (CheckError, OSError):
        return False
    return state.key == key


def restore(folder: Path, model: LoopedTransformer, optimizer: torch.optim.Optimizer) -> CheckpointState:
    """Load weights and optimizer of `folder` into `model` and `optimizer`, bit for bit.

    Raises CheckError that names a file which is missing or changed, InputError for a foreign model.
    """
    state = read_state(folder)
    for name in state.files:
        _check_file(folder / name, state)
    _load_weights(folder, model)
    if _OPTIMIZER in state.files:
        load_optimizer_state(model, optimizer, load_file(folder / _OPTIMIZER))
    return state


def load_model(folder: str | Path) -> LoopedTransformer:
    """The model of a checkpoint folder (ours, or any `nanbeige` one with float32, bfloat16 or float16 weights).

    Weights become float32. Raises InputError naming the file, field or tensor that is missing or wrong, CheckError when
    a checkpoint of ours was changed since it was saved.
    """
    config = read_config(folder)
    if (Path(folder) / _STATE).is_file():  # not in an export, nor in a foreign folder
        state = read_state(Path(folder))
        for name in ("config.json", _WEIGHTS):
            _check_file(Path(folder) / name, state)
    model = _empty_model(config)
    _load_weights(Path(folder), model)
    return model.eval()


def _check_file(path: Path, state: CheckpointState) -> None:
    if not path.is_file() or sha256_file(path) != state.files.get(path.name):
        raise CheckError(f"{path}: missing or changed since it was saved. Delete the folder {path.parent}")


def _empty_model(config: LoopedConfig) -> LoopedTransformer:
    with torch.device("meta"):
        model = LoopedTransformer(config)
    return model.to_empty(device="cpu")


def _load_weights(folder: Path, model: nn.Module) -> None:
    path = folder / _WEIGHTS
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise InputError("no such file", path=str(path), todo="Give the folder of a checkpoint") from None
    except SafetensorError as error:
        raise InputError(f"not a safetensors file ({error})", path=str(path), todo="Restore the checkpoint") from None
    parameters = dict(model.named_parameters())
    _check_tensors(path, tensors, parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            if not bool(torch.isfinite(tensors[name]).all()):
                raise InputError(
                    "holds values that are no finite numbers",
                    path=str(path),
                    field=name,
                    todo="Give an earlier checkpoint",
                )
            parameter.copy_(slice_like(parameter, tensors[name].to(torch.float32)))


def _check_tensors(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found or name not in wanted:
            problem = "missing" if name not in found else "unknown here"
            raise InputError(f"tensor {problem}", path=str(path), field=name, todo="It must fit config.json")
        if found[name].shape != wanted[name].shape:
            raise InputError(
                f"shape {list(found[name].shape)}, config.json gives {list(wanted[name].shape)}",
                path=str(path),
                field=name,
                todo="It must fit config.json",
            )


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write `path` (safetensors), readable by those that the umask lets read: the library alone makes it 0600."""
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    path.chmod(mode)


@contextmanager
def whole_folder(target: Path, advice: str, what: str = "the checkpoint") -> Iterator[Path]:
    """Yield a temporary folder that becomes `target` (replacing it) when the block ends well.

    Raises DatamixError, which says `what` was to be saved and ends with `advice`, when the disk refuses.
    """
    temporary = target.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in [*sorted(temporary.iterdir()), temporary]:
            _fsync(path)
        if target.exists() or target.is_symlink():
            old = target.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-old-{target.name}")
            target.rename(old)
            temporary.rename(target)
            remove(old)
        else:
            temporary.rename(target)
        _fsync(target.parent)
    except (OSError, SafetensorError) as error:
        raise DatamixError(f"{target}: {what} could not be saved ({error}). {advice}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
