"""The search pool of a run: documents of the kept corpus, an index over them, and facts that are known of them.

    corpus/kept/part-k ─► trajectories/search/ {documents.jsonl, documents.txt, facts.jsonl, index/, pool.json}

Which documents are taken depends on their ids alone (the smallest hashes, up to a number and a size), so partitions and
order do not matter. Texts pass through one at a time; what is held is ids, positions, word numbers and facts.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import shutil
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from pipelines.synthesis.environments.functions import standard_library
from pipelines.synthesis.environments.search_facts import facts_of, other_names
from pipelines.synthesis.environments.search_index import POOL_VERSION, SearchDocument, SearchIndex, words_of
from schemas.document import document_id
from schemas.errors import InputError, UsageError
from schemas.files import TEMPORARY_PREFIX, canonical_json

__all__ = ["build_search_pool"]

MOST_DOCUMENTS, MOST_CHARACTERS = 1_500, 12_000_000
LEAST_DOCUMENT, LONGEST_DOCUMENT = 200, 60_000  # characters
FEWEST_DOCUMENTS, FEWEST_FACTS = 30, 120  # with less the standard library is added
LIBRARY_DOCUMENTS = 200
FACTS_OF_A_DOCUMENT = 24
TOO_COMMON = 60  # documents that have a name: beyond, no search finds the one that defines it
FOUND_WITHIN = 5  # rank at which a fact's own words must find its document
TITLE_CHARACTERS = 90
_COLUMNS = ["id", "text", "origin", "license"]
_PATH = re.compile(r"(?!/)[^\s#]*\.[A-Za-z]{1,4}(?=#\d+$)")
_TABLES = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".txt", ".zst", ".gz")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A document that was taken: where its row is, and what it is called."""

    id: str
    part: int  # -1: the standard library
    row: int


def build_search_pool(
    corpus_parts: Sequence[Path],
    out: Path,
    most_documents: int = MOST_DOCUMENTS,
    most_characters: int = MOST_CHARACTERS,
    standard_library_too: bool | None = None,
) -> dict[str, Any]:
    """Write the pool folder `out` (whole or not at all); returns its counts.

    Counts: documents, characters, words (distinct), facts, facts_by_kind, left_out {reason: n}, standard_library. With
    fewer than 30 documents or 120 facts the files of the running Python's standard library are added
    (`standard_library_too` True adds them anyway, False never). Raises InputError for parts that cannot be read,
    UsageError when no document is left. Cost: about 1.5 CPU seconds a million characters.
    """
    counts = _build(corpus_parts, out, most_documents, most_characters, bool(standard_library_too))
    few = counts["documents"] < FEWEST_DOCUMENTS or counts["facts"] < FEWEST_FACTS
    if few and standard_library_too is None:
        counts = _build(corpus_parts, out, most_documents, most_characters, True)
    if not counts["facts"]:
        shutil.rmtree(out, ignore_errors=True)
        raise UsageError(
            f"the search pool has no fact to ask about: {counts['documents']} of the corpus's documents have "
            f"{LEAST_DOCUMENT} to {LONGEST_DOCUMENT} characters. Add text to the corpus, or let the standard library in"
        )
    return counts


def _build(
    parts: Sequence[Path], out: Path, most_documents: int, most_characters: int, library: bool
) -> dict[str, Any]:
    left_out: Counter[str] = Counter()
    chosen = _choose(parts, most_documents, most_characters, library, left_out)
    temporary = out.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{out.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        words = _write_documents(parts, chosen, temporary)
        counts: dict[str, Any] = {
            "version": POOL_VERSION,
            "documents": len(chosen),
            "characters": 0,
            "words": len(words),
            "facts": 0,
            "facts_by_kind": {},
            "left_out": dict(sorted(left_out.items())),
            "standard_library": sum(item.part < 0 for item in chosen.values()),
        }
        if chosen:
            counts |= _write_facts(temporary, counts)
        else:
            (temporary / "facts.jsonl").write_text("")
        (temporary / "pool.json").write_text(canonical_json(counts) + "\n", encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return counts


def _choose(
    parts: Sequence[Path], most_documents: int, most_characters: int, library: bool, left_out: Counter[str]
) -> dict[str, _Chosen]:
    """The documents with the smallest hashes, by id. What an id's text is longer or shorter than wanted is left out."""
    heap: list[tuple[int, str, int, int, int]] = []  # (-hash, id, part, row, characters)
    seen: set[str] = set()
    held = 0
    for number, row, record in _rows(parts, library):
        size = len(record["text"])
        if not LEAST_DOCUMENT <= size <= LONGEST_DOCUMENT:
            left_out["too_short" if size < LEAST_DOCUMENT else "too_long"] += 1
        elif record["id"] in seen:
            left_out["same_text"] += 1
        else:
            seen.add(record["id"])
            order = xxhash.xxh3_64_intdigest(record["id"].encode()) if number >= 0 else row  # the library comes first
            heapq.heappush(heap, (-order, record["id"], number, row, size))
            held += size
            while len(heap) > most_documents or (held > most_characters and len(heap) > 1):
                held -= heapq.heappop(heap)[4]
                left_out["beyond_the_pools_size"] += 1
    return {item[1]: _Chosen(item[1], item[2], item[3]) for item in sorted(heap, key=lambda item: item[1])}


def _rows(parts: Sequence[Path], library: bool) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(part, row, record) of everything there is, one row at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if library:
        for row, source in enumerate(_library()):
            yield -1, row, {"id": document_id(source.text, "standard library"), **asdict(source)}
    for number, path in enumerate(parts):
        try:
            with pq.ParquetFile(path) as table:
                row = 0
                missing = [name for name in _COLUMNS if name not in table.schema_arrow.names]
                if missing:
                    raise ValueError(f"it has no column {missing[0]}")
                for batch in table.iter_batches(batch_size=64, columns=_COLUMNS):
                    for record in batch.to_pylist():
                        yield number, row, record
                        row += 1
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(f"not a part of a corpus ({error})", path=str(path), todo="Run the corpus step") from error


def _library() -> Iterable[Any]:
    """Files of the standard library that fit, spread over all of it."""
    fitting = [source for source in standard_library() if 2_000 <= len(source.text) <= LONGEST_DOCUMENT]
    return fitting[:: max(1, len(fitting) // LIBRARY_DOCUMENTS)][:LIBRARY_DOCUMENTS]


def _write_documents(parts: Sequence[Path], chosen: dict[str, _Chosen], folder: Path) -> dict[str, int]:
    """documents.txt, documents.jsonl and index/; returns the vocabulary. Second pass over the rows."""
    import bm25s

    numbers = {(item.part, item.row): number for number, item in enumerate(chosen.values())}
    length = next(n for n in range(6, 33) if len({key[:n] for key in chosen}) == len(chosen))
    documents: list[SearchDocument | None] = [None] * len(chosen)
    tokens: list[Any] = [array("i")] * len(chosen)
    vocabulary: dict[str, int] = {}
    start = 0
    with open(folder / "documents.txt", "wb") as handle:
        for part, row, record in _rows(parts, any(item.part < 0 for item in chosen.values())):
            number = numbers.get((part, row))
            if number is None:
                continue
            text = record["text"].replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
            data = text.encode("utf-8", "replace")
            handle.write(data)
            key, title = record["id"], _title(record["origin"], text)
            documents[number] = SearchDocument(key, "d" + key[:length], title, record["license"], start, len(data))
            start += len(data)
            found = words_of(f"{title}\n{text}")
            tokens[number] = array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in found])
    with open(folder / "documents.jsonl", "w", encoding="utf-8") as lines:
        lines.writelines(canonical_json(asdict(document)) + "\n" for document in documents if document is not None)
    if documents:
        index = bm25s.BM25(method="lucene", backend="numpy")
        index.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
        index.save(folder / "index", show_progress=False)
    return vocabulary


def _title(origin: str, text: str) -> str:
    """The file's path where the origin is one inside a package, else the first line of the text."""
    path = _PATH.match(origin)
    if path is not None and not path[0].endswith(_TABLES):
        return path[0]
    if "#" not in origin and origin.endswith(".py") and not origin.startswith("/"):
        return origin
    first = next((line.strip() for line in text.split("\n") if line.strip()), "untitled")
    return " ".join(first.split())[:TITLE_CHARACTERS]


def _write_facts(folder: Path, counts: dict[str, Any]) -> dict[str, Any]:
    """facts.jsonl: what names one document only and is found by its own words; returns the counts of it."""
    (folder / "pool.json").write_text(canonical_json(counts), encoding="utf-8")  # so that the index can be opened
    index = SearchIndex(folder)
    characters = 0
    try:
        frequency = _frequencies(index)
        gathered: list[dict[str, Any]] = []
        others: set[tuple[str, str]] = set()
        for number in range(len(index.documents)):
            text = index.text(number)
            characters += len(text)
            for fact in facts_of(text, lambda word: frequency.get(word, 0)):
                gathered.append({"document": number, **fact})
            others.update(other_names(text))
        kept = _askable(gathered, others, index, frequency)
    finally:
        index.close()
    with open(folder / "facts.jsonl", "w", encoding="utf-8") as handle:
        handle.writelines(json.dumps(fact, ensure_ascii=False) + "\n" for fact in kept)
    kinds = Counter(fact["kind"] for fact in kept)
    return {"characters": characters, "facts": len(kept), "facts_by_kind": dict(sorted(kinds.items()))}


def _frequencies(index: SearchIndex) -> dict[str, int]:
    """How many documents have each word."""
    vocabulary = index.vocabulary
    pointers = index.pointers()
    return {word: int(pointers[number + 1] - pointers[number]) for word, number in vocabulary.items()}


def _askable(
    facts: list[dict[str, Any]], others: set[tuple[str, str]], index: SearchIndex, frequency: dict[str, int]
) -> list[dict[str, Any]]:
    """Facts whose subject has one definition in the whole pool and whose words rank their document near the top.

    `others` are the names that are defined beside the facts (`other_names`).
    """
    named = Counter(fact["subject"].lower() for fact in facts if fact["kind"] != "gap")
    sentences = Counter(fact["sentence"] for fact in facts if fact["kind"] == "gap")
    kept: list[dict[str, Any]] = []
    of_document: Counter[int] = Counter()
    for fact in facts:
        if fact["kind"] == "gap":
            usable = sentences[fact["sentence"]] == 1
        else:
            name = fact["subject"].lower()
            usable = named[name] == 1 and (fact["kind"], fact["subject"]) not in others
            usable = usable and len(name) >= 4 and frequency.get(name, 0) <= TOO_COMMON
        if not usable or of_document[fact["document"]] >= FACTS_OF_A_DOCUMENT:
            continue
        if fact["document"] in index.search(" ".join(fact["words"]), FOUND_WITHIN)[0]:
            kept.append(fact)
            of_document[fact["document"]] += 1
    return kept
