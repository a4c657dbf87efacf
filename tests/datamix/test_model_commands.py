"""`datamix train`, `evaluate`, `export` and `chat` on a small trained run."""

from __future__ import annotations

import json
import shutil
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from datamix.checkpoints import find_checkpoint, run_of_checkpoint
from datamix.commands.chat import command as chat
from datamix.commands.evaluate import command as evaluate
from datamix.commands.export import command as export
from datamix.commands.train import command as train
from datamix.talk import Talk
from pipelines.synthesis.environments.base import open_environment
from pipelines.synthesis.rollout import HELDOUT_SEEDS
from schemas.errors import DatamixError, InputError, UsageError
from schemas.files import sha256_file
from schemas.trajectory import Message, ToolCall


def done(command: Any, *arguments: str, text: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(command, [*arguments], input=text)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def test_training_from_a_copy_of_the_shards_gives_the_run_s_own_weights(small_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("shards", "tokenizer"):
        shutil.copytree(small_run / name, copy / name)
    recipe = str(small_run / "recipe.yaml")
    first = json.loads(done(train, recipe, "--run", str(copy), "--phase", "pretrain", "--json").stdout)
    assert first["checkpoint"] == str(copy / "train/checkpoints/pretrain")
    whole = json.loads(done(train, recipe, "--run", str(copy), "--json").stdout)
    assert whole["steps"] > first["steps"]
    own = small_run / "train/checkpoints/final/model.safetensors"
    assert whole["sha256"] == sha256_file(own) == sha256_file(copy / "train/checkpoints/final/model.safetensors")


def test_training_without_shards_says_how_to_write_them(small_run: Path, tmp_path: Path) -> None:
    failed = CliRunner().invoke(train, [str(small_run / "recipe.yaml"), "--run", str(tmp_path)])
    assert isinstance(failed.exception, InputError)
    assert "datamix run RECIPE --out RUN --until shards" in str(failed.exception)


def test_evaluation_of_a_run_and_of_its_checkpoint_agree_with_the_run_s_results(small_run: Path) -> None:
    written = json.loads((small_run / "evaluate/results.json").read_text(encoding="utf-8"))
    by_run = json.loads(done(evaluate, str(small_run), "--json").stdout)
    by_checkpoint = json.loads(done(evaluate, str(small_run / "train/checkpoints/final"), "--json").stdout)
    assert by_run == by_checkpoint
    assert by_run["heldout"] == written["heldout"]
    assert list(by_run["loops"]["loss"]) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    earlier = json.loads(done(evaluate, str(small_run / "train/checkpoints/pretrain"), "--json").stdout)
    assert earlier["heldout_total"]["loss"] == by_run["heldout_total"]["pretrain_loss"]


def test_evaluation_prints_a_table_of_every_family(small_run: Path) -> None:
    few = ("--set", "evaluate.tasks=2", "--set", "evaluate.max_new_tokens=4", "--set", "evaluate.max_steps=1")
    shown = done(evaluate, str(small_run), "--family", "all", *few).stdout
    assert "Held-out loss, nats a token" in shown
    assert "trained with 2" in shown
    lines = [line.split() for line in shown.splitlines() if "reasoning" in line]
    assert any("2" in line for line in lines)
    with pytest.raises(UsageError, match=r"families are .*reasoning, repair.*, all"):
        CliRunner().invoke(evaluate, [str(small_run), "--family", "cooking"], catch_exceptions=False)


def test_a_checkpoint_outside_a_run_needs_one_named(small_run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "model"
    shutil.copytree(small_run / "train/checkpoints/final", alone)
    with pytest.raises(UsageError, match="lies in no run"):
        CliRunner().invoke(evaluate, [str(alone)], catch_exceptions=False)
    told = json.loads(done(evaluate, str(alone), "--run", str(small_run), "--json").stdout)
    assert told["heldout_total"]["tokens"] > 0
    assert run_of_checkpoint(small_run / "train/checkpoints/final") == small_run.resolve()
    assert run_of_checkpoint(alone) is None


def test_what_is_no_checkpoint_is_named(small_run: Path, tmp_path: Path) -> None:
    assert find_checkpoint(small_run) == small_run / "train/checkpoints/final"
    with pytest.raises(InputError, match=r"no checkpoint \(no config\.json\)"):
        find_checkpoint(tmp_path)
    (tmp_path / "shards").mkdir()
    with pytest.raises(InputError, match=r"no final checkpoint in this run\. Train it to its end$"):
        find_checkpoint(tmp_path)
    shutil.copytree(small_run / "train/checkpoints/pretrain", tmp_path / "train/checkpoints/pretrain")
    with pytest.raises(InputError, match=r"to its end, or give one of train/checkpoints/: pretrain$"):
        find_checkpoint(tmp_path)


def test_an_export_to_a_folder_says_what_it_wrote(small_run: Path, tmp_path: Path) -> None:
    told = json.loads(done(export, str(small_run), "--to", "hf", "--out", str(tmp_path / "hf"), "--json").stdout)
    assert {Path(path).name for path in told["files"]} >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert json.loads((tmp_path / "hf/config.json").read_text())["model_type"] == "nanbeige"
    arguments = [str(small_run), "--to", "llama", "--out", str(tmp_path / "llama")]
    with pytest.raises(UsageError, match="no plain Llama computes the same"):
        CliRunner().invoke(export, arguments, catch_exceptions=False)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
def test_an_export_to_gguf_reads_back_and_llama_cpp_opens_it(small_run: Path, tmp_path: Path, kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    file = tmp_path / "m.gguf"
    shown = done(export, str(small_run), "--to", "gguf", "--type", kind, "--out", str(file)).stdout
    assert shown == f"{file}: {file.stat().st_size:,} bytes\n"
    assert gguf.GGUFReader(file).get_field("nanbeige.num_loops").contents() == 2
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(file), 64, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    body = json.dumps({"prompt": "def f", "n_predict": 2, "ignore_eos": True}).encode()
    post = urllib.request.Request(f"{server.listening_address}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(post, timeout=60) as answer:
        assert json.load(answer)["tokens_predicted"] == 2


def test_chat_answers_every_line_of_a_pipe_the_same_for_the_same_seed(small_run: Path) -> None:
    arguments = (str(small_run), "--max-new-tokens", "6", "--seed", "3")
    first = done(chat, *arguments, text=b"hello\nwhat is \xff 2 + 2?\n").output
    assert first == done(chat, *arguments, text=b"hello\nwhat is \xff 2 + 2?\n").output
    assert first.count("(cut: the reply reached its length)") == 2
    assert done(chat, *arguments, text="").output == ""


def test_chat_sets_a_task_up_and_judges_it(small_run: Path) -> None:
    shown = done(chat, str(small_run), "--tools", "reasoning", "--max-new-tokens", "4", text="\n").output
    assert shown.startswith("task (an empty line sends it):\n")
    assert shown.endswith("task solved: no\n")
    with pytest.raises(UsageError, match=r"families are .*reasoning, repair"):
        CliRunner().invoke(chat, [str(small_run), "--tools", "cooking"], catch_exceptions=False)


class Scripted:
    """An agent that says what it is told to say."""

    def __init__(self, *replies: Message) -> None:
        self.replies = list(replies)

    def act(self, messages: list[Message], tools: str) -> Message:
        return self.replies.pop(0)


def test_a_call_in_a_talk_really_runs_and_the_last_answer_is_judged() -> None:
    with open_environment("reasoning", split="heldout") as environment:
        task = next(
            task
            for seed in range(100)
            if "calculator" in (task := environment.generate(HELDOUT_SEEDS + seed, 1)).system
        )
        environment.reset(task)
        name, argument = next(
            (tool["function"]["name"], next(iter(tool["function"]["parameters"]["properties"])))
            for tool in environment.tools
        )
        call = ToolCall("call_0", name, json.dumps({argument: "6*7"}))
        agent = Scripted(Message("assistant", "", None, [call]), Message("assistant", "Answer: 42"))
        talk = Talk(agent, environment, task)
        said = list(talk.say(talk.opening))
        assert [message.role for message in said] == ["assistant", "tool", "assistant"]
        assert "42" in said[1].content
        outcome = talk.outcome()
        assert outcome is not None and outcome.success is not None


def test_a_call_without_tools_gets_an_error_and_replies_are_bounded() -> None:
    reply = Message("assistant", "", None, [ToolCall("call_0", "run", "{}")])
    talk = Talk(Scripted(reply, reply, reply), max_steps=2)
    said = list(talk.say("go"))
    assert [(message.role, message.error) for message in said if message.role == "tool"] == [("tool", True)] * 2
    assert len(said) == 4
    assert talk.outcome() is None


def test_an_endpoint_that_answers_nothing_is_no_measurement() -> None:
    with socket.socket() as taken:  # bound and not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        options = ["--endpoint", url, "--model", "m", "--family", "reasoning", "--set", "evaluate.tasks=1"]
        failed = CliRunner().invoke(evaluate, [*options, "--endpoint-set", "retries=0"])
    assert failed.exit_code == 1
    assert isinstance(failed.exception, DatamixError)
    assert f"{url}: no request was answered (connection), so nothing was measured" in str(failed.exception)
