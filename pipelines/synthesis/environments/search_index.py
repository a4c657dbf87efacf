"""The documents of a search pool as an agent reaches them: ranked search (BM25 by bm25s), pages, lines by pattern.

A pool is a folder that `pipelines.synthesis.pools.search.build_search_pool` writes:

    pool.json           version, counts
    documents.jsonl     one document a line, in order of the ids: id, name, title, license, start, bytes
    documents.txt       their texts one after the other (UTF-8); read by position, never whole
    facts.jsonl         what is known of them by construction (search_facts.py)
    index/              bm25s's own files

Scores come from bm25s; equal scores are ordered by document, so results are the same everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import InputError

__all__ = ["PAGE_CHARACTERS", "POOL_VERSION", "SearchDocument", "SearchIndex", "pages_of", "words_of"]

POOL_VERSION = 1
PAGE_CHARACTERS = 5_000
KEPT_TEXTS = 64  # texts remembered by an open index
MOST_WORDS = 200  # of a query; more is cut
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words that the index knows a text by: runs of letters, digits and underscores, in lower case."""
    return _WORD.findall(text.lower())


def pages_of(text: str) -> list[tuple[int, int]]:
    """(start, end) of every page in characters: whole lines up to PAGE_CHARACTERS; a longer line is cut."""
    pages: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = min(start + PAGE_CHARACTERS, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        pages.append((start, end))
        start = end
    return pages or [(0, 0)]


@dataclass(frozen=True, slots=True)
class SearchDocument:
    """`name` is what agents call it, `id` the corpus's document id; the text is `bytes` bytes from `start` on."""

    id: str
    name: str
    title: str
    license: str | None
    start: int
    bytes: int


class SearchIndex:
    """An opened pool. Memory: the index and the document list; texts are read when asked for.

    Raises InputError when the folder is not a pool of this version.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        try:
            self.counts: dict[str, Any] = json.loads((self._folder / "pool.json").read_text(encoding="utf-8"))
            lines = (self._folder / "documents.jsonl").read_text(encoding="utf-8").splitlines()
            self.documents = [SearchDocument(**json.loads(line)) for line in lines]
            self._texts = os.open(self._folder / "documents.txt", os.O_RDONLY)
        except (OSError, ValueError, TypeError) as error:
            todo = "Run the synthesize step first, or name the folder trajectories/search of a run"
            raise InputError(f"not a search pool ({error})", path=str(folder), todo=todo) from error
        if self.counts.get("version") != POOL_VERSION:
            problem = f"a search pool of version {self.counts.get('version')}, version {POOL_VERSION} is read"
            raise InputError(problem, path=str(folder), field="version", todo="Build the pool again")
        self.by_name = {document.name: number for number, document in enumerate(self.documents)}
        self._kept: OrderedDict[int, str] = OrderedDict()
        self._bm25: Any = None

    def facts(self) -> list[dict[str, Any]]:
        """The pool's facts in order. Raises InputError naming the line that is none."""
        path = self._folder / "facts.jsonl"
        facts: list[dict[str, Any]] = []
        try:
            with open(path, encoding="utf-8") as handle:
                for line in handle:
                    fact = json.loads(line)
                    if not isinstance(fact, dict) or "kind" not in fact:
                        raise ValueError("no object with a kind")
                    facts.append(fact)
        except FileNotFoundError as error:
            raise InputError("no such file", path=str(path), todo="Build the search pool again") from error
        except ValueError as error:
            problem = f"not a fact of a search pool ({error})"
            raise InputError(
                problem, path=str(path), line=len(facts) + 1, todo="Build the search pool again"
            ) from error
        return facts

    def text(self, number: int) -> str:
        """The text of a document by its number."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        document = self.documents[number]
        text = os.pread(self._texts, document.bytes, document.start).decode("utf-8")
        self._kept[number] = text
        if len(self._kept) > KEPT_TEXTS:
            self._kept.popitem(last=False)
        return text

    def search(self, query: str, k: int) -> tuple[list[int], int]:
        """The best `k` documents for the query's words, best first, and how many share a word with it at all."""
        import numpy as np

        scores = self.scores(words_of(query)[:MOST_WORDS])
        order = np.argsort(-scores, kind="stable")[:k]
        return [int(number) for number in order if scores[number] > 0], int((scores > 0).sum())

    def scores(self, words: Sequence[str]) -> Any:
        """BM25 score of every document (float32, in order); zeros when no word is known."""
        import numpy as np

        ids = [self.vocabulary[word] for word in words if word in self.vocabulary]
        if not ids:
            return np.zeros(len(self.documents), dtype=np.float32)
        return self._bm25.get_scores_from_ids(ids)

    def with_word(self, word: str) -> list[int]:
        """The documents that have a word (as `words_of` gives it), in order."""
        number = self.vocabulary.get(word)
        if number is None:
            return []
        pointers = self.pointers()
        return sorted(map(int, self._bm25.scores["indices"][pointers[number] : pointers[number + 1]]))

    @property
    def vocabulary(self) -> dict[str, int]:
        """Every word of the documents and its number. Loads the index."""
        if self._bm25 is None:
            import bm25s

            try:
                self._bm25 = bm25s.BM25.load(self._folder / "index", load_corpus=False)
            except (OSError, ValueError, KeyError) as error:
                todo = "Build the search pool again"
                raise InputError(f"not an index ({error})", path=str(self._folder / "index"), todo=todo) from error
            self._bm25.vocab_dict.pop("", None)
        words: dict[str, int] = self._bm25.vocab_dict
        return words

    def pointers(self) -> Any:
        """Where each word's documents begin and end in the index (int64, one more than words): df by difference."""
        return self._bm25.scores["indptr"] if self.vocabulary else [0]

    def close(self) -> None:
        """Close the text file; idempotent."""
        if self._texts >= 0:
            os.close(self._texts)
            self._texts = -1
