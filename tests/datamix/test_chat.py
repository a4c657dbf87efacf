"""`datamix chat` when the person interrupts, types what is no text, or the model calls without end."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from datamix.commands import chat
from datamix.talk import Talk
from schemas.errors import CheckError, UsageError
from schemas.files import read_json, write_json
from schemas.trajectory import Message, ToolCall

CALL = Message("assistant", "", None, [ToolCall("call_0", "run", "{}")])


class Interrupted:
    """An agent that says what it is told to say, and is interrupted where it is told None."""

    def __init__(self, *replies: Message | None) -> None:
        self.replies = list(replies)
        self.seen: list[list[str]] = []

    def act(self, messages: list[Message], tools: str) -> Message:
        self.seen.append([message.role for message in messages])
        reply = self.replies.pop(0)
        if reply is None:
            raise KeyboardInterrupt
        return reply


class _Terminal:
    def isatty(self) -> bool:
        return True


def test_an_interrupt_in_a_terminal_ends_the_reply_and_not_the_talk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Interrupted(None, Message("assistant", "yes"), CALL, None, Message("assistant", "again"))
    talk = Talk(agent)
    monkeypatch.setattr(sys, "stdin", _Terminal())
    for text in ("first", "second", "third", "fourth"):
        chat._turn(talk, text)
    # the unanswered turn is gone; the call that got its result stays
    assert [m.role for m in talk.messages] == ["user", "assistant", "user", "assistant", "tool", "user", "assistant"]
    assert [m.content for m in talk.messages if m.role == "user"] == ["second", "third", "fourth"]
    shown = capsys.readouterr()
    assert shown.err.count("(stopped: what is unfinished is forgotten)") == 2
    assert shown.out.splitlines()[0] == "yes"


def test_an_interrupt_of_a_pipe_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as pipe, pytest.raises(KeyboardInterrupt):
        monkeypatch.setattr(sys, "stdin", pipe)
        chat._turn(Talk(Interrupted(None)), "hello")


def test_a_call_without_its_result_is_forgotten_with_its_turn() -> None:
    talk = Talk(Interrupted(CALL))
    said = talk.say("go")
    assert next(said) is CALL  # interrupted here, before the call has run
    said.close()
    talk.forget_unsettled()
    assert talk.messages == []


def test_bytes_from_a_terminal_that_are_no_text_become_replacement_characters(tmp_path: Path) -> None:
    code = "import sys; from datamix.commands import chat; open(sys.argv[1], 'w').write(ascii(next(chat._lines())))"
    mine, its = pty.openpty()
    arguments = [sys.executable, "-X", "utf8", "-c", code, str(tmp_path / "lines")]
    os.write(mine, b"a\xffb\xc3\xa9\n")
    subprocess.run(arguments, stdin=its, stdout=its, stderr=subprocess.DEVNULL, timeout=60, check=True)
    os.close(mine)
    os.close(its)
    assert (tmp_path / "lines").read_text() == r"'a\ufffdb\xe9'"


def test_control_characters_of_a_model_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    steering = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e"
    call = ToolCall(f"id{steering}", f"name{steering}", f"arguments{steering}")
    chat._print(Message("assistant", f"content{steering}", f"reasoning{steering}", [call]))
    chat._print(Message("tool", f"result{steering}", tool_call_id="id", name=f"tool{steering}"))
    shown = capsys.readouterr().out
    assert not set("\x1b\x07\r\x9b\u202e") & set(shown)
    for part in ("content", "reasoning", "name", "arguments", "result", "tool"):
        assert f"{part}\\x1b]0;owned\\x07" in shown


def test_a_temperature_that_is_no_number_is_refused(small_run: Path) -> None:
    with pytest.raises(UsageError, match="--temperature nan"):
        CliRunner().invoke(chat.command, [str(small_run), "--temperature", "nan"], catch_exceptions=False)


def test_another_model_s_larger_tokenizer_is_refused(small_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(small_run / "train/checkpoints/final", folder)
    raw: dict[str, Any] = read_json(folder / "tokenizer.json")
    raw["added_tokens"].append({**raw["added_tokens"][0], "id": 99_999, "content": "<|far|>"})
    raw["model"]["vocab"]["<|far|>"] = 99_999
    write_json(folder / "tokenizer.json", raw)
    with pytest.raises(CheckError, match=r"100000 tokens, the model knows \d+: it is another model's tokenizer"):
        CliRunner().invoke(chat.command, [str(folder)], input="hi\n", catch_exceptions=False)
