"""Two processes over gloo: the model spread by FSDP2, or whole in both, trains like one; checkpoints change hands."""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from schemas.lock import locked
from schemas.progress import Quiet
from trainer import train as training
from trainer.__main__ import main
from trainer.metrics import read_metrics
from trainer.sharding import slice_like, whole
from trainer.train import train
from trainer.world import join_world

STEPS, PRETRAIN = 11, 7


def together(work: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `work(rank)` in two forks of this process that torchrun's variables make a world; both must succeed."""
    import torch.distributed.fsdp  # noqa: F401  (once, for both)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
                work(rank)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    monkeypatch.delenv("WORLD_SIZE")
    codes: dict[int, int] = {}
    until = time.monotonic() + 240
    while len(codes) < 2:
        for child in set(children) - codes.keys():
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[child] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until or any(codes.values()):
            for child in set(children) - codes.keys():
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            break
        time.sleep(0.05)
    assert list(codes.values()) == [0, 0]


def _next_port() -> None:
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)


def test_two_processes_train_like_one_and_checkpoints_change_hands(
    tmp_path: Path, make_shards: Any, make_recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """one: one process. two: sharded, then one goes on. three: one, then two sharded go on. four: two, not sharded."""
    for name in ("one", "two", "three", "four"):
        make_shards(tmp_path / name / "shards")
    recipe, kept_whole = make_recipe(), make_recipe(sharding="none")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    said: list[str] = []

    class Listener(Quiet):
        def say(self, line: str) -> None:
            said.append(line)

    def work(rank: int) -> None:
        arguments = [str(tmp_path / "recipe.yaml"), str(tmp_path / "two"), "--phase", "pretrain"]
        main(arguments, standalone_mode=False)
        _next_port()
        train(recipe, tmp_path / "three", Listener(), "sft")
        _next_port()
        train(kept_whole, tmp_path / "four", Listener())
        if rank == 0:
            (tmp_path / "said").write_text("\n".join(said))

    train(recipe, tmp_path / "one", Quiet())
    train(recipe, tmp_path / "three", Quiet(), "pretrain")
    together(work, monkeypatch)
    train(recipe, tmp_path / "two", Quiet())

    lines = {name: read_metrics(tmp_path / name / "train/metrics.jsonl") for name in ("one", "two", "three", "four")}
    weights = {name: load_file(tmp_path / name / "train/checkpoints/final/model.safetensors") for name in lines}
    moments = {
        name: load_file(tmp_path / name / f"train/checkpoints/step-{STEPS}/optimizer.safetensors") for name in lines
    }
    counts = ("step", "stage", "rows", "segments", "tokens", "trained_tokens")
    for name in ("two", "three", "four"):
        assert [line["loss"] for line in lines[name]] == pytest.approx(
            [line["loss"] for line in lines["one"]], abs=1e-5
        )
        norms = [line["grad_norm"] for line in lines["one"]]
        assert [line["grad_norm"] for line in lines[name]] == pytest.approx(norms, rel=1e-4)
        assert [[line[c] for c in counts] for line in lines[name]] == [
            [line[c] for c in counts] for line in lines["one"]
        ]
        for found, wanted in ((weights[name], weights["one"]), (moments[name], moments["one"])):
            assert found.keys() == wanted.keys()
            for key, tensor in wanted.items():
                torch.testing.assert_close(found[key], tensor, atol=2e-4, rtol=1e-3, msg=f"{name} {key}")
    same = [[line["loss"] for line in lines[name]][:PRETRAIN] for name in ("one", "three")]
    assert same[0] == same[1]
    heard = (tmp_path / "said").read_text()
    assert "2 processes over gloo: FSDP2 spreads the model" in heard
    assert "each holds the whole model and gradients are summed (train.sharding is none)" in heard


def test_two_processes_that_died_and_started_again_end_with_the_same_bytes(
    tmp_path: Path, make_shards: Any, make_recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sharded and not: died in step 5 of 11, after the checkpoint of step 4."""
    kinds = ("auto", "none")
    for kind in kinds:
        make_shards(tmp_path / f"whole-{kind}/shards")
        make_shards(tmp_path / f"died-{kind}/shards")
    real = training.gradient_step

    def work(rank: int) -> None:
        for kind in kinds:
            recipe, left = make_recipe(sharding=kind), iter(range(5))

            def dying(*arguments: Any, left: Iterator[int] = left) -> Any:
                if next(left, None) is None:
                    raise InterruptedError
                return real(*arguments)

            with monkeypatch.context() as patch, suppress(InterruptedError):
                patch.setattr(training, "gradient_step", dying)
                train(recipe, tmp_path / f"died-{kind}", Quiet())
            assert not (tmp_path / f"died-{kind}/train/checkpoints/final").exists()
            _next_port()
            train(recipe, tmp_path / f"died-{kind}", Quiet())
            _next_port()
            train(recipe, tmp_path / f"whole-{kind}", Quiet())
            _next_port()

    together(work, monkeypatch)
    for kind in kinds:
        for name in ("metrics.jsonl", *(f"checkpoints/{f}/model.safetensors" for f in ("pretrain", "final"))):
            whole_run, died = (tmp_path / f"{run}-{kind}/train" / name for run in ("whole", "died"))
            assert whole_run.read_bytes() == died.read_bytes(), f"{kind} {name}"


def test_torchrun_takes_the_documented_command_and_hands_it_on() -> None:
    from torch.distributed.run import get_args_parser

    text = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    command = next(line.split() for line in text.splitlines() if line.strip().startswith("torchrun "))
    extra = ["--phase", "sft", "--set", "train.sharding=none"]
    parsed = get_args_parser().parse_args(command[1:] + extra)
    assert (parsed.nproc_per_node, parsed.module, parsed.training_script) == ("2", True, "trainer")
    given = main.make_context("trainer", parsed.training_script_args).params
    assert given == {
        "recipe": Path("recipes/demo.yaml"), "run": Path("RUN"), "phase": "sft", "overrides": ("train.sharding=none",),
    }  # fmt: skip


def test_a_run_that_another_process_trains_is_left_alone(
    tmp_path: Path, make_shards: Any, make_recipe: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers live on when torchrun alone is killed: the next training must not write beside them."""
    make_shards(tmp_path / "run/shards")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(make_recipe().model_dump(mode="json")))
    with locked(tmp_path / "run"), pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "recipe.yaml"), str(tmp_path / "run")], standalone_mode=False)
    assert ended.value.code == 2
    assert f"process {os.getpid()} is writing this run" in capsys.readouterr().err
    assert not (tmp_path / "run/train").exists()


def test_a_backend_without_a_collective_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lacking(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("Backend gloo does not support reduce_scatter\nsecond line")

    def work(rank: int) -> None:
        if rank == 1:  # both must hear of it
            monkeypatch.setattr(torch.distributed, "reduce_scatter_single", lacking)
            monkeypatch.setattr(torch.distributed, "all_gather_single", lacking)
        else:
            monkeypatch.setattr(torch.distributed, "all_gather_single", lambda out, one: None)
            monkeypatch.setattr(torch.distributed, "reduce_scatter_single", lambda one, out: one.fill_(2))
        with join_world() as world:
            (tmp_path / str(rank)).write_text(f"{world.sharded} {world.how}")

    together(work, monkeypatch)
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text() == (
            "False 2 processes over gloo: each holds the whole model and gradients are summed "
            "(Backend gloo does not support reduce_scatter)"
        )


def test_one_process_needs_no_slices() -> None:
    tensor = torch.arange(3.0)
    assert torch.equal(whole(tensor), tensor) and torch.equal(slice_like(torch.zeros(3), tensor), tensor)
    with join_world() as world:
        assert (world.sharded, world.how, world.most(4)) == (False, "one process", 4)
