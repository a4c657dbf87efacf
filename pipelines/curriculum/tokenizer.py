"""Step `tokenizer`: a byte-level BPE of the run's own text, or the user's Hugging Face folder.

The training text is a sample: documents of corpus/kept in proportion to the mixture's shares, and pieces of rendered
trajectories, both taken in the order of a seeded hash of the record id until `sample_bytes` are reached. The held-out
documents of the evaluation are chosen later (reweight step) and may be among the sample: a vocabulary learns which
byte strings are frequent, not what follows what, so held-out loss stays a fair measure.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pipelines.context import RunContext, StepOutput
from pipelines.curriculum.renderers import chat_template_of
from pipelines.curriculum.template import chat_template, form_of
from pipelines.synthesis.chat import CONTROL_TOKENS, END_OF_TEXT, TURN_END, render_messages
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.errors import InputError
from schemas.files import atomic_path, write_json
from schemas.recipe import Recipe
from schemas.trajectory import Trajectory

__all__ = ["TextTokenizer", "load_tokenizer", "tokenizer", "train_bpe", "write_tokenizer_folder"]

TRAJECTORY_SHARE = 0.2  # of sample_bytes: tool calls and results differ from documents, and both are trained on
LONGEST_PART = 262_144  # characters of one record that are sampled: one huge file must not be the whole sample

# Word splits as in Qwen2 and GPT-4 (cl100k): contractions, letters, single digits, punctuation runs, line breaks.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
COPIED = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def tokenizer(context: RunContext) -> StepOutput:
    """Write RUN/tokenizer/ (a Hugging Face folder). Raises InputError when there is no text to train on."""
    folder = context.run / "tokenizer"
    recipe = context.recipe
    counts: dict[str, Any] = {}
    if recipe.tokenizer.path is not None:
        _copy_folder(Path(recipe.tokenizer.path), folder, recipe.curriculum.tool_calls)
    else:
        train = recipe.tokenizer.train
        if train is None:
            raise InputError("the recipe has neither tokenizer.train nor tokenizer.path", field="tokenizer")
        sample = _Sample(context.run, recipe, train.sample_bytes)
        text = train_bpe(sample.texts(), train.vocab_size)
        write_tokenizer_folder(folder, text, form=recipe.curriculum.tool_calls)
        counts = {"sampled_bytes": sample.bytes, "sampled_records": sample.records}
    loaded = load_tokenizer(folder)
    counts = {"vocab_size": loaded.vocab_size, "digest": loaded.digest, **counts}
    context.progress.say(f"tokenizer: {loaded.vocab_size:,} tokens")
    return StepOutput([folder / name for name in COPIED if (folder / name).exists()], counts)


def train_bpe(texts: Iterable[str], vocab_size: int) -> str:
    """tokenizer.json of a byte-level BPE trained on `texts`: same texts, same bytes.

    Control tokens take the ids 0…10, the 256 bytes follow, then merges. The vocabulary is smaller than `vocab_size`
    when the text has no more pairs that occur twice. Raises InputError when there is no text at all.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    some = False

    def watched() -> Iterator[str]:
        nonlocal some
        for text in texts:
            some = some or bool(text)
            yield text

    made.train_from_iterator(watched(), trainer)
    if not some:
        raise InputError(
            "there is no text to train a tokenizer on",
            path="corpus/kept",
            todo="Check what the corpus steps dropped (datamix stats), or give tokenizer.path",
        )
    text: str = made.to_str(pretty=True)
    return text


def write_tokenizer_folder(folder: Path, tokenizer_json: str, *, form: str = "xml") -> None:
    """Write a folder that `transformers.AutoTokenizer` and `load_tokenizer` read, with our chat template.

    `form` is how the template and `datamix` write calls (xml or json); it stands in the config as `tool_call_format`.
    No `model_max_length`: how long a model reads is its own config's matter, and the stages differ.
    """
    ids = {token["content"]: token["id"] for token in json.loads(tokenizer_json)["added_tokens"]}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(ids[token]): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token in CONTROL_TOKENS
        },
        "chat_template": chat_template(form),
        "tool_call_format": form,
    }
    _write_text(folder / "tokenizer.json", tokenizer_json + "\n")
    write_json(folder / "tokenizer_config.json", config)
    others = list(CONTROL_TOKENS[1:])
    special = {"eos_token": TURN_END, "pad_token": END_OF_TEXT, "additional_special_tokens": others}
    write_json(folder / "special_tokens_map.json", special)
    _write_text(folder / "chat_template.jinja", chat_template(form))


def _write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _copy_folder(source: Path, target: Path, form: str) -> None:
    """Copy the files of a tokenizer folder; its template moves to chat_template.jinja when only the config has it.

    A folder without a template or with ours gets ours with calls in `form`; anybody else's template stays as it is.
    """
    load_tokenizer(source)
    for name in COPIED:
        if (source / name).is_file():
            with atomic_path(target / name) as temporary:
                shutil.copyfile(source / name, temporary)
    config = load_tokenizer(target).config
    template = chat_template_of(target, config.get("chat_template"))
    if template is None or form_of(template) is not None:
        template = chat_template(form)
        write_json(target / "tokenizer_config.json", {**config, "chat_template": template, "tool_call_format": form})
    _write_text(target / "chat_template.jinja", template)


@dataclass(frozen=True, slots=True)
class _Record:
    """Where a record lies and how large it is: what is kept in memory of it."""

    order: int
    path: int
    row: int
    bytes: int


class _Sample:
    """Which records the tokenizer is trained on. Memory: one small entry a record, and one batch of text."""

    def __init__(self, run: Path, recipe: Recipe, sample_bytes: int) -> None:
        self._seed = recipe.seed
        self._form = recipe.curriculum.tool_calls
        self._documents = sorted((run / "corpus" / "kept").glob("part-*.parquet"))
        self._trajectories = sorted((run / "trajectories" / "kept").glob("part-*.parquet"))
        turns = self._list_trajectories()
        documents = self._list_documents()
        spoken = min(sum(r.bytes for r in turns), round(sample_bytes * TRAJECTORY_SHARE))
        if not documents:
            spoken = min(sum(r.bytes for r in turns), sample_bytes)
        supply = {domain: sum(r.bytes for r in records) for domain, records in documents.items()}
        quotas = share_out(sample_bytes - spoken, supply, recipe.mixture.shares or supply)
        chosen = {domain: _take(records, quotas.get(domain, 0)) for domain, records in documents.items()}
        self._chosen_documents = _by_path(record for records in chosen.values() for record in records)
        taken = _take(turns, spoken)
        self._chosen_trajectories = _by_path(taken)
        self.bytes = {domain: sum(r.bytes for r in records) for domain, records in sorted(chosen.items())}
        self.bytes["trajectories"] = sum(r.bytes for r in taken)
        self.records = sum(len(records) for records in chosen.values()) + len(taken)

    def texts(self) -> Iterator[str]:
        """The sampled texts, in file order; a document cut to its share of the sample."""
        for number, path in enumerate(self._documents):
            wanted = self._chosen_documents.get(number, {})
            for row, batch, at in _rows(path, ["text"], wanted):
                yield batch.column("text")[at].as_py()[: wanted[row]]
        for number, path in enumerate(self._trajectories):
            wanted = self._chosen_trajectories.get(number, {})
            for _, batch, at in _rows(path, None, wanted):
                yield from _spoken(Trajectory.from_row(batch.slice(at, 1).to_pylist()[0]), self._form)

    def _order(self, record_id: str) -> int:
        return xxhash.xxh3_64_intdigest(f"tokenizer:{self._seed}:{record_id}".encode())

    def _list_documents(self) -> dict[str, list[_Record]]:
        found: dict[str, list[_Record]] = {}
        for number, path in enumerate(self._documents):
            row = 0
            for batch in pq.ParquetFile(path).iter_batches(batch_size=512, columns=["id", "domain", "text"]):
                sizes = pc.binary_length(batch.column("text")).to_pylist()
                columns = (batch.column("id").to_pylist(), batch.column("domain").to_pylist(), sizes)
                for record_id, domain, size in zip(*columns, strict=True):
                    record = _Record(self._order(record_id), number, row, min(size, LONGEST_PART))
                    found.setdefault(domain or "", []).append(record)
                    row += 1
        return found

    def _list_trajectories(self) -> list[_Record]:
        found = []
        for number, path in enumerate(self._trajectories):
            row = 0
            for batch in pq.ParquetFile(path).iter_batches(batch_size=16):
                for raw in batch.to_pylist():
                    trajectory = Trajectory.from_row(raw)
                    size = sum(len(text.encode("utf-8", "replace")) for text in _spoken(trajectory, self._form))
                    found.append(_Record(self._order(trajectory.id), number, row, size))
                    row += 1
        return found


def _spoken(trajectory: Trajectory, form: str) -> list[str]:
    """The plain pieces of a rendered trajectory, as they are encoded later, up to LONGEST_PART characters in all."""
    try:
        pieces = render_messages(trajectory.messages, trajectory.tools, form=form)
    except InputError:
        return []
    kept, left = [], LONGEST_PART
    for piece in pieces:
        if not piece.control and left > 0:
            kept.append(piece.text[:left])
            left -= len(piece.text)
    return kept


def share_out(total: int, supply: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, int]:
    """Split `total` bytes by `shares` without passing any supply; what one domain lacks goes to the others.

    Domains without a share get nothing. The sum is `total`, or the whole supply of the named domains if smaller
    (less rounding).
    """
    quotas = dict.fromkeys(shares, 0)
    open_domains = {d for d in shares if shares[d] > 0 and supply.get(d, 0) > 0}
    left = total
    while open_domains and left > 0:
        weight = sum(shares[d] for d in open_domains)
        full = {d for d in open_domains if supply[d] - quotas[d] <= left * shares[d] / weight}
        for domain in sorted(full or open_domains):
            grown = supply[domain] - quotas[domain] if full else int(left * shares[domain] / weight)
            quotas[domain] += grown
        if not full:
            break
        left = total - sum(quotas.values())
        open_domains -= full
    return quotas


def _take(records: list[_Record], quota: int) -> list[_Record]:
    """The first records in hash order whose sizes fill the quota; the last is cut to what is left."""
    taken, left = [], quota
    for record in sorted(records, key=lambda r: (r.order, r.path, r.row)):
        if left <= 0:
            break
        taken.append(_Record(record.order, record.path, record.row, min(record.bytes, left)))
        left -= record.bytes
    return taken


def _by_path(records: Iterable[_Record]) -> dict[int, dict[int, int]]:
    grouped: dict[int, dict[int, int]] = {}
    for record in records:
        grouped.setdefault(record.path, {})[record.row] = record.bytes
    return grouped


def _rows(
    path: Path, columns: list[str] | None, wanted: Mapping[int, int]
) -> Iterator[tuple[int, pa.RecordBatch, int]]:
    """(row, batch, position in the batch) of the wanted rows of a Parquet file, in order."""
    if not wanted:
        return
    row = 0
    for batch in pq.ParquetFile(path).iter_batches(batch_size=64, columns=columns):
        for at in range(batch.num_rows):
            if row + at in wanted:
                yield row + at, batch, at
        row += batch.num_rows
