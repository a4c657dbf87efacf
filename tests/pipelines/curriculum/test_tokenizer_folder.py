"""The tokenizer: same text same bytes, control tokens only where the renderer puts them, large vocabularies exact."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from pipelines.context import RunContext
from pipelines.curriculum.renderers import open_renderer
from pipelines.curriculum.template import CHAT_TEMPLATE, chat_template
from pipelines.curriculum.token_files import open_tokens, token_dtype
from pipelines.curriculum.tokenizer import share_out, tokenizer, train_bpe
from pipelines.synthesis.chat import CONTROL_TOKENS
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.errors import InputError
from schemas.recipe import parse_recipe
from schemas.shard import token_type
from schemas.trajectory import Message, ToolCall, Trajectory

CORPUS = ["def f(x):\n    return x + 1\n", "The sum of 12 and 34 is 46.", "漢字 🙂 naïve", "a <|im_end|> b"] * 20


def test_the_control_tokens_have_the_first_ids(bpe: TextTokenizer) -> None:
    assert bpe.controls == {token: place for place, token in enumerate(CONTROL_TOKENS)}
    assert bpe.end_of_text_id == 0 and bpe.vocab_size == 400


def test_training_gives_the_same_bytes_in_another_process() -> None:
    here = train_bpe(iter(CORPUS), 320)
    code = f"from pipelines.curriculum.tokenizer import train_bpe; print(train_bpe(iter({CORPUS!r}), 320), end='')"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert there.stdout == here


def test_no_text_at_all_is_an_error_that_says_where() -> None:
    with pytest.raises(InputError, match="corpus/kept: there is no text"):
        train_bpe([], 320)


@given(st.text(max_size=60))
def test_text_round_trips(bpe: TextTokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode(text)) == text


@given(st.lists(st.sampled_from([*CONTROL_TOKENS, "<image>", "a", " ", "\n", "<|", "🙂"]), max_size=12).map("".join))
def test_spelled_control_tokens_are_plain_text(bpe: TextTokenizer, text: str) -> None:
    ids = bpe.encode(text)
    assert not np.isin(ids, list(bpe.controls.values())).any()
    assert bpe.decode(ids) == text


def test_counts_are_the_lengths_of_the_ids(bpe: TextTokenizer) -> None:
    texts = [*CORPUS[:4], "", "x" * 5000]
    assert bpe.count_batch(texts) == [len(ids) for ids in bpe.encode_batch(texts)]
    assert bpe.count_batch([]) == []


def test_a_lone_surrogate_is_refused(bpe: TextTokenizer) -> None:
    with pytest.raises(InputError, match="UTF-8"):
        bpe.encode("a\ud800b")


def large_vocabulary(folder: Path, size: int = 151_936) -> None:
    """A word-level tokenizer of `size` ids, as large as the widely used ones."""
    words = {f"w{i}": i for i in range(size - 1)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))


def test_a_vocabulary_of_151_936_round_trips_through_a_work_file(tmp_path: Path) -> None:
    large_vocabulary(tmp_path / "large")
    loaded = load_tokenizer(tmp_path / "large")
    assert loaded.vocab_size == 151_936 and loaded.end_of_text_id == 151_935
    ids = np.append(loaded.encode("w65535 w65536 w151934"), loaded.end_of_text_id)
    assert ids.tolist() == [65_535, 65_536, 151_934, 151_935]
    (tmp_path / "t.bin").write_bytes(ids.astype(token_dtype(loaded.vocab_size)).tobytes())
    assert open_tokens(tmp_path / "t.bin", loaded.vocab_size).tolist() == [65_535, 65_536, 151_934, 151_935]
    assert (token_type(65_536), token_type(65_537)) == (pa.uint16(), pa.uint32())


def test_a_word_vocabulary_never_gives_a_control_id_for_text(tmp_path: Path) -> None:
    made = Tokenizer(models.WordLevel({"<unk>": 0, "<end>": 1, "<": 2, "end>": 3, "a": 4}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken("<end>", special=True)])
    made.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    assert loaded.control_id("<end>") == 1
    assert loaded.encode("a <end> a").tolist() == [4, 2, 3, 4]
    assert loaded.count_batch(["a <end> a"]) == [4]


@pytest.mark.parametrize("content", [None, "{", "[1, 2]", '{"model": {"type": "nothing"}}'])
def test_a_folder_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=str(tmp_path)):
        load_tokenizer(tmp_path)


def test_the_step_writes_a_folder_twice_the_same(make_run: Callable[..., RunContext]) -> None:
    made = []
    for name in ("one", "two"):
        context = make_run(name)
        shutil.rmtree(context.run / "tokenizer")
        output = tokenizer(context)
        made.append({path.name: path.read_bytes() for path in output.files})
        assert output.counts["vocab_size"] == 400
        assert output.counts["sampled_bytes"]["trajectories"] == 8_000
        assert sum(output.counts["sampled_bytes"].values()) <= 40_000
    assert made[0] == made[1]
    assert set(made[0]) == {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    }
    config = json.loads(made[0]["tokenizer_config.json"])
    assert config["chat_template"] == made[0]["chat_template.jinja"].decode() == CHAT_TEMPLATE
    assert config["eos_token"] == "<|im_end|>"


def test_the_step_takes_a_users_folder(make_run: Callable[..., RunContext], recipe_text: str, tmp_path: Path) -> None:
    large_vocabulary(tmp_path / "theirs", 1_000)
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    text = recipe_text.replace("{train: {vocab_size: 400, sample_bytes: 40000}}", f"{{path: {tmp_path / 'theirs'}}}")
    context = make_run(recipe=parse_recipe(text))
    shutil.rmtree(context.run / "tokenizer")
    output = tokenizer(context)
    assert output.counts["vocab_size"] == 1_000
    assert (context.run / "tokenizer" / "chat_template.jinja").read_text() == "{{ messages }}"


@pytest.mark.parametrize("own", [True, False])
def test_the_form_of_calls_is_in_the_template_and_the_config(
    make_run: Callable[..., RunContext], recipe_text: str, bpe_folder: Path, own: bool
) -> None:
    text = recipe_text.replace("rows_per_file: 3", "rows_per_file: 3\n  tool_calls: json")
    if not own:
        text = text.replace("{train: {vocab_size: 400, sample_bytes: 40000}}", f"{{path: {bpe_folder}}}")
    context = make_run(recipe=parse_recipe(text))
    shutil.rmtree(context.run / "tokenizer")
    tokenizer(context)
    folder = context.run / "tokenizer"
    assert (folder / "chat_template.jinja").read_text() == chat_template("json")
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == chat_template("json")
    assert load_tokenizer(folder).call_form == "json"
    message = Message("assistant", "", "r", [ToolCall("c", "run", '{"a": 1}')], train=True)
    rendered = open_renderer(load_tokenizer(folder))([Trajectory("0" * 32, "s", "f", [message])])[0]
    assert isinstance(rendered, list)
    assert '{"name": "run", "arguments": {"a": 1}}' in load_tokenizer(folder).decode(rendered[0].ids)


@pytest.mark.parametrize(
    ("total", "supply", "expected"),
    [
        (100, {"math": 1000, "code": 1000}, {"math": 75, "code": 25}),
        (100, {"math": 10, "code": 1000}, {"math": 10, "code": 90}),
        (100, {"math": 10, "code": 20}, {"math": 10, "code": 20}),
        (100, {"code": 1000, "web": 1000}, {"math": 0, "code": 100}),
        (0, {"math": 10, "code": 20}, {"math": 0, "code": 0}),
    ],
)
def test_the_sample_follows_the_shares(total: int, supply: dict[str, int], expected: dict[str, int]) -> None:
    assert share_out(total, supply, {"math": 0.75, "code": 0.25}) == expected


def test_damaged_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(Tokenizer(models.BPE()).to_str(), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer_config\.json: not JSON"):
        _ = load_tokenizer(tmp_path).config
