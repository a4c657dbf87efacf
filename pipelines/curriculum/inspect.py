"""Looking at shards: a row in pieces, the provenance of a token, and the check of a whole folder.

Reading is by record batch from a memory map, so that one row of a large file costs that row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.curriculum.render import TRAINED
from pipelines.curriculum.renderers import chat_template_of
from pipelines.curriculum.template import form_of
from pipelines.synthesis.chat import CONTROL_TOKENS, TURN_END, TURN_START, Piece, render_generation_prompt
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.errors import CheckError, DatamixError, InputError, UsageError
from schemas.files import sha256_file
from schemas.shard import INDEX_NAME, SHARD_VERSION, ShardIndex, StageIndex, parse_segment_id, read_index

__all__ = [
    "Provenance",
    "Row",
    "Segment",
    "Span",
    "check_row",
    "check_shards",
    "explain_token",
    "iter_rows",
    "open_shard",
    "read_row",
    "row_spans",
]


@dataclass(slots=True)
class Segment:
    """One segment of a row: its record's id, where it starts in the row, its tokens and its run-length reasons."""

    segment_id: str
    start: int
    length: int
    runs: list[tuple[int, str]]


@dataclass(slots=True)
class Row:
    """One packed row: `ids` (n,), `mask` (n,) bool, the segments in order."""

    ids: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_]
    segments: list[Segment]


@dataclass(slots=True)
class Span:
    """A run of tokens of one segment with one reason, decoded. `start` counts tokens in the row."""

    segment_id: str
    start: int
    tokens: int
    reason: str
    text: str


@dataclass(slots=True)
class Provenance:
    """Where a token comes from.

    `document`, `epoch` and `piece` are set for pretraining; `trajectory` and `turn` (which ChatML turn of the segment,
    from 0) for the others, with `part` where it was split at user turns and `replayed_in` where a stage repeats it.
    """

    shard: str
    row: int
    token: int
    token_id: int
    text: str
    stage: str
    phase: str
    segment: int
    segment_id: str
    position: int
    trained: bool
    reason: str
    trajectory: str | None = None
    part: int | None = None
    replayed_in: int | None = None
    turn: int | None = None
    document: str | None = None
    epoch: int | None = None
    piece: int | None = None


def open_shard(path: str | Path) -> pa.ipc.RecordBatchFileReader:
    """Open a shard file.

    Raises InputError when it is none (missing, cut, or other data), CheckError for one of a newer version.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        metadata = reader.schema.metadata or {}
    except FileNotFoundError:
        raise InputError("no such shard", path=str(path), todo="Give a file under RUN/shards") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"not a whole Arrow file ({error})", path=str(path), todo="Write the shards again") from None
    if metadata.get(b"datamix.record") != b"shard":
        raise InputError("an Arrow file, but not a shard", path=str(path), todo="Give a file under RUN/shards")
    version = metadata.get(b"datamix.version", b"0").decode(errors="replace")
    if not version.isdecimal() or int(version) > int(SHARD_VERSION):
        raise CheckError(f"{path}: shard version {version} is newer than {SHARD_VERSION}. Update datamix")
    return reader


def read_row(path: str | Path, row: int) -> Row:
    """Row `row` (from 0) of a shard file. Raises UsageError when the file has no such row."""
    reader = open_shard(path)
    first = 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        if first <= row < first + batch.num_rows:
            return _row(batch, row - first)
        first += batch.num_rows
    raise UsageError(f"{path} has no row {row}: its rows are 0 to {first - 1}")


def iter_rows(reader: pa.ipc.RecordBatchFileReader) -> Iterator[Row]:
    """The rows of an open shard, one after another: memory of one record batch."""
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        for at in range(batch.num_rows):
            yield _row(batch, at)


def _row(batch: pa.RecordBatch, at: int) -> Row:
    ids = batch.column("input_ids")[at].values.to_numpy(zero_copy_only=False)
    mask = batch.column("loss_mask")[at].values.to_numpy(zero_copy_only=False)
    lengths = batch.column("segment_lengths")[at].as_py()
    names = batch.column("segment_ids")[at].as_py()
    runs = [(run["tokens"], run["reason"]) for run in batch.column("mask_reasons")[at].as_py()]
    return Row(ids, mask, _segments(lengths, names, runs))


def _segments(lengths: list[int], names: list[str], runs: list[tuple[int, str]]) -> list[Segment]:
    """Segments with their own runs; a run that crosses a boundary is cut there, one that is left over is dropped."""
    segments = []
    waiting = list(reversed(runs))
    start = 0
    for length, name in zip(lengths, names, strict=False):
        mine: list[tuple[int, str]] = []
        left = length
        while left > 0 and waiting:
            count, reason = waiting.pop()
            if count > left:
                waiting.append((count - left, reason))
                count = left
            mine.append((count, reason))
            left -= count
        segments.append(Segment(name, start, length, mine))
        start += length
    return segments


def row_spans(row: Row, tokenizer: TextTokenizer) -> list[Span]:
    """The row as decoded runs in order: what `show` colours. Costs the decoding of the row."""
    spans = []
    for segment in row.segments:
        at = segment.start
        for count, reason in segment.runs:
            spans.append(Span(segment.segment_id, at, count, reason, tokenizer.decode(row.ids[at : at + count])))
            at += count
    return spans


def explain_token(folder: str | Path, shard: str | Path, row: int, token: int, tokenizer: TextTokenizer) -> Provenance:
    """Provenance of token `token` of row `row` of `shard`, a file of the shard folder `folder`.

    Raises UsageError when the row or the token does not exist.
    """
    path = Path(shard)
    found = read_row(path, row)
    if not 0 <= token < len(found.ids):
        raise UsageError(f"{path}:{row} has no token {token}: its tokens are 0 to {len(found.ids) - 1}")
    number = max(i for i, s in enumerate(found.segments) if s.start <= token and s.length)
    segment = found.segments[number]
    position = token - segment.start
    reason, end = "", 0
    for count, why in segment.runs:
        end += count
        if position < end:
            reason = why
            break
    stage = _stage_of(read_index(folder), Path(folder), path)
    made = Provenance(
        shard=str(path),
        row=row,
        token=token,
        token_id=int(found.ids[token]),
        text=tokenizer.decode(found.ids[token : token + 1]),
        stage=stage.name,
        phase=stage.phase,
        segment=number,
        segment_id=segment.segment_id,
        position=position,
        trained=bool(found.mask[token]),
        reason=reason,
    )
    if stage.phase == "pretrain":
        document, _, rest = segment.segment_id.rpartition("@")
        epoch, _, piece = rest.partition(".")
        made.document, made.epoch, made.piece = document, int(epoch), int(piece)
    else:
        made.trajectory, made.part, made.replayed_in = parse_segment_id(segment.segment_id)
        start = tokenizer.controls.get(TURN_START)
        turns = int((found.ids[segment.start : token + 1] == start).sum()) if start is not None else 0
        made.turn = turns - 1 if turns else None
    return made


def _stage_of(index: ShardIndex, folder: Path, shard: Path) -> StageIndex:
    for stage in index.stages:
        if any((folder / file.path).resolve() == shard.resolve() for file in stage.files):
            return stage
    raise UsageError(f"{shard} is not in {folder / INDEX_NAME}. Give a shard that the index lists")


def check_row(row: Row, *, vocab_size: int, context_tokens: int) -> list[str]:
    """What is wrong with a row; [] when nothing is."""
    faults = []
    tokens = len(row.ids)
    lengths = [segment.length for segment in row.segments]
    if tokens > context_tokens:
        faults.append(f"{tokens} tokens, above the stage's {context_tokens}")
    if len(row.mask) != tokens:
        return [*faults, f"{len(row.mask)} mask values for {tokens} tokens"]
    if sum(lengths) != tokens or any(length < 1 for length in lengths):
        return [*faults, f"segment lengths {lengths[:8]} do not make {tokens} tokens"]
    if tokens and int(row.ids.max()) >= vocab_size:
        faults.append(f"id {int(row.ids.max())} is outside the vocabulary of {vocab_size}")
    starts = np.array([segment.start for segment in row.segments], dtype=np.int64)
    first = np.flatnonzero(row.mask[starts]) if tokens else starts
    if len(first):
        faults.append(f"segment {int(first[0])} trains its first token, which nothing predicts")
    runs = [run for segment in row.segments for run in segment.runs]
    if sum(count for count, _ in runs) != tokens or any(count < 1 for count, _ in runs):
        return [*faults, f"the reasons cover {sum(count for count, _ in runs)} of {tokens} tokens"]
    by_reason = np.repeat(np.array([why == TRAINED for _, why in runs], dtype=np.bool_), [count for count, _ in runs])
    differing = np.flatnonzero(by_reason != row.mask)
    if len(differing):
        faults.append(f"token {int(differing[0])}: mask and reason disagree")
    return faults


class _Turns:
    """What every trained run of our chat format looks like: a whole assistant turn, after its header."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        opening = [token for piece in render_generation_prompt() for token in _ids(tokenizer, piece)]
        self._opening = np.array(opening, dtype=np.uint32)
        self._start, self._end = tokenizer.control_id(TURN_START), tokenizer.control_id(TURN_END)

    def faults(self, row: Row) -> list[str]:
        """Segments that begin inside a turn, and trained runs that are no assistant turn."""
        found = []
        for number, segment in enumerate(row.segments):
            at = segment.start
            if int(row.ids[at]) != self._start:
                found.append(f"segment {number} does not begin with a turn")
            for count, reason in segment.runs:
                if reason == TRAINED:
                    ids = row.ids[at : at + count]
                    before = row.ids[max(segment.start, at - len(self._opening)) : at]
                    if not np.array_equal(before, self._opening):
                        found.append(f"segment {number} trains tokens from {at} on that follow no assistant header")
                    elif int(ids[-1]) != self._end or np.isin(ids[:-1], (self._start, self._end)).any():
                        found.append(f"segment {number} trains tokens from {at} on that are not one whole turn")
                at += count
        return found


def _ids(tokenizer: TextTokenizer, piece: Piece) -> list[int]:
    return [tokenizer.control_id(piece.text)] if piece.control else tokenizer.encode(piece.text).tolist()


def _turns_of(tokenizer: TextTokenizer | None) -> _Turns | None:
    """None where the turns are not known to be ours: no tokenizer, or one with another template."""
    if tokenizer is None:
        return None
    template = chat_template_of(tokenizer.folder, tokenizer.config.get("chat_template"))
    ours = set(CONTROL_TOKENS[1:]) <= set(tokenizer.controls) and (template is None or form_of(template) is not None)
    return _Turns(tokenizer) if ours else None


def check_shards(folder: str | Path, tokenizer_folder: str | Path | None = None) -> list[str]:
    """Everything that is wrong with a shard folder: the index, digests, totals, every row. [] when nothing is.

    With a tokenizer of our chat format also that what is trained of a trajectory is whole assistant turns.
    Checks all bytes (SHA-256) and all rows; costs about a second for 100 MB. An index that cannot be read is a fault
    too, not an exception.
    """
    folder = Path(folder)
    try:
        index = read_index(folder)
        tokenizer = load_tokenizer(tokenizer_folder) if tokenizer_folder is not None else None
    except DatamixError as error:
        return [str(error)]
    faults = []
    if tokenizer is not None and tokenizer.digest != index.tokenizer_digest:
        faults.append(f"{folder / INDEX_NAME}: made with another tokenizer than {tokenizer.folder}")
    if tokenizer is not None and tokenizer.vocab_size < index.vocab_size:
        faults.append(
            f"{tokenizer.folder}: {tokenizer.vocab_size} ids, fewer than the {index.vocab_size} of the shards"
        )
    listed = {file.path for stage in index.stages for file in stage.files}
    for stray in sorted({p.relative_to(folder).as_posix() for p in folder.rglob("*.arrow")} - listed):
        faults.append(f"{folder / stray}: not in the index. Two runs' shards may be mixed")
    turns = _turns_of(tokenizer)
    for stage in index.stages:
        for file in stage.files:
            of_stage = turns if stage.phase == "sft" else None
            faults.extend(_check_file(folder / file.path, index, stage, file.sha256, _totals(file), of_stage))
    return faults


def _totals(file: Any) -> dict[str, int]:
    return {"rows": file.rows, "tokens": file.tokens, "trained_tokens": file.trained_tokens, "segments": file.segments}


def _check_file(
    path: Path, index: ShardIndex, stage: StageIndex, sha256: str, expected: dict[str, int], turns: _Turns | None
) -> list[str]:
    if not path.is_file():
        return [f"{path}: missing"]
    if sha256_file(path) != sha256:
        return [f"{path}: its bytes are not those that the index names"]
    try:
        reader = open_shard(path)
    except DatamixError as error:
        return [str(error)]
    faults = []
    metadata = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
    wanted = {
        "datamix.stage": stage.name,
        "datamix.context_tokens": str(stage.context_tokens),
        "datamix.vocab_size": str(index.vocab_size),
        "datamix.tokenizer_digest": index.tokenizer_digest,
        "datamix.recipe_digest": index.recipe_digest,
    }
    for key, value in wanted.items():
        if metadata.get(key) != value:
            faults.append(f"{path}: {key} is {metadata.get(key)!r}, the index says {value!r}")
    found = dict.fromkeys(expected, 0)
    for number, row in enumerate(iter_rows(reader)):
        problems = check_row(row, vocab_size=index.vocab_size, context_tokens=stage.context_tokens)
        if turns is not None and not problems:
            problems = turns.faults(row)
        faults.extend(f"{path}: row {number}: {problem}" for problem in problems)
        found["rows"] += 1
        found["tokens"] += len(row.ids)
        found["trained_tokens"] += int(row.mask.sum())
        found["segments"] += len(row.segments)
    faults.extend(
        f"{path}: {found[total]} {total}, the index says {count}"
        for total, count in expected.items()
        if found[total] != count
    )
    return faults
