"""A converted file in TRL's SFTTrainer: the labels arrive as written, masked turns give no gradient, context counts.

Needs the `hf` extra; the same facts are tested without it on plain torch in test_convert_tokens.py.
"""

import pytest
import torch

from pipelines.curriculum.tokenizer import train_bpe, write_tokenizer_folder
from pipelines.synthesis.convert import convert_file
from pipelines.synthesis.convert.tokens import IGNORED
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.trajectory import Message, ToolCall, Trajectory

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")


def sample(identity, first="lss"):
    return Trajectory(
        identity, "unit", "recorded",
        [
            Message("user", "list the files"),
            Message("assistant", "wrong", "hm", [ToolCall("c1", "run", f'{{"command": "{first}"}}')], train=False),
            Message("tool", "not found", tool_call_id="c1", name="run"),
            Message("assistant", "right", None, [ToolCall("c2", "run", '{"command": "ls"}')], train=True),
            Message("tool", "a.py", tool_call_id="c2", name="run"),
            Message("assistant", "There is a.py.", train=True),
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """(tokenizer folder, dataset of three rows: two equal ones but for the text of the masked call)."""
    folder = tmp_path_factory.mktemp("trl")
    texts = ["list the files in the folder and say what is there\n", "a.py was not found; ls works\n"] * 50
    write_tokenizer_folder(folder, train_bpe(texts, 400))
    write_trajectories(folder / "T.parquet", [sample("a"), sample("b", first="abc"), sample("c")])
    convert_file(folder / "T.parquet", "trl", folder / "rows.parquet", tokenizer=folder)
    cache = str(folder / "cache")
    return folder, datasets.load_dataset(
        "parquet", data_files=str(folder / "rows.parquet"), split="train", cache_dir=cache
    )


def small_model(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=1024,
    )  # fmt: skip
    return tokenizer, transformers.LlamaForCausalLM(config)


def test_sft_trainer_takes_the_rows_and_trains_on_exactly_the_written_labels(rows, tmp_path):
    folder, dataset = rows
    tokenizer, model = small_model(folder)
    arrived = []
    model.register_forward_pre_hook(
        lambda _module, _args, kwargs: arrived.append((kwargs["input_ids"][0].tolist(), kwargs["labels"][0].tolist())),
        with_kwargs=True,
    )
    settings = trl.SFTConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=1, use_cpu=True, report_to="none",
        save_strategy="no", max_length=None, bf16=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = trl.SFTTrainer(model=model, args=settings, train_dataset=dataset, processing_class=tokenizer)
    result = trainer.train()
    assert result.global_step == 2
    written = [(row["input_ids"], row["labels"]) for row in dataset]
    assert len(arrived) >= 2
    assert all(pair in written for pair in arrived)


def logits_and_loss(model, row):
    ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
    out = model(input_ids=ids, labels=labels)
    return out.logits, out.loss


def test_masked_turns_give_no_gradient_but_are_context(rows):
    folder, dataset = rows
    _, model = small_model(folder)
    first, changed, same = dataset[0], dataset[1], dataset[2]
    logits, loss = logits_and_loss(model, first)
    logits.retain_grad()
    loss.backward()
    touched = logits.grad[0].abs().sum(dim=1) > 0
    targets = torch.tensor([*(label != IGNORED for label in first["labels"][1:]), False])
    assert torch.equal(touched, targets)
    trained = [label for label in first["labels"] if label != IGNORED]
    assert trained == [label for label in changed["labels"] if label != IGNORED]
    assert first["input_ids"] != changed["input_ids"]
    with torch.no_grad():
        assert logits_and_loss(model, same)[1] == logits_and_loss(model, first)[1]
        assert logits_and_loss(model, changed)[1] != logits_and_loss(model, first)[1]
