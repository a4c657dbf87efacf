"""Family `search`: questions over the run's own deduplicated corpus, answered by searching and reading it.

The pool (`pool_path`, a folder made by `build_search_pool`) holds documents of the kept corpus, a BM25 index and facts
read off the documents. A task is one question or a sheet of them: facts, chains over several documents, comparisons,
counts over named documents, and questions that nothing in the corpus answers. Answers and the documents that prove them
are known by construction; `verify` wants both: the right `Answer k:` line, and every supporting document seen (opened,
looked into, or among the results of a search). A right answer whose documents were not seen counts half.

Difficulty 1 is one question about one document; 10 is a sheet of dozens, with pages to read for each.
"""

from __future__ import annotations

import math
import random
import re
import time
from pathlib import Path
from typing import Any

import regex

from pipelines.synthesis.environments.answers import answers_of, same_text_answer
from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from pipelines.synthesis.environments.lengths import target_bytes
from pipelines.synthesis.environments.search_index import SearchIndex, pages_of, words_of
from pipelines.synthesis.environments.search_questions import ABSENT, Question, cost_of
from pipelines.synthesis.environments.search_tasks import SNIPPET, QuestionMaker
from schemas.errors import UsageError
from schemas.trajectory import Outcome

__all__ = ["TOOLS", "SearchEnvironment", "questions_of"]

SYSTEM = (
    "You answer questions from a collection of documents, with a search engine over it. Rely on what they say, "
    f"not on what you remember. If they do not say it, the answer is `{ABSENT}`. Answer without a tool call at the end."
)
OPENINGS = ("Answer these questions.", "Please look up the following.", "A list of things to find out:")
MOST_RESULTS, RESULTS = 20, 5
MOST_LINES = 30
FIND_SECONDS = 5.0  # for a pattern in all of a document: a thousand times what a sound one takes
MOST_REPEATS = 1_000  # the product of the counts {n} of a pattern: a compiled one grows with it
FIXED_BYTES = 3_000
_RECURSION = re.compile(r"(?<!\\)(?:\\\\)*\(\?(?:R|[+-]?\d|&|P>)")  # calls of itself: memory without end


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_DOCUMENT = {"type": "string", "description": "id of a document, as search shows it"}
TOOLS = [
    _tool(
        "search",
        "Find documents by words (BM25): the best k, with id, title and a line of each.",
        {"query": {"type": "string", "minLength": 1}, "k": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS}},
        ["query"],
    ),
    _tool(
        "open",
        "Read a page of a document (the first if none is given).",
        {"document": _DOCUMENT, "page": {"type": "integer", "minimum": 1}},
        ["document"],
    ),
    _tool(
        "find",
        "Find the lines of a document that match a regular expression (any case), with page and line number.",
        {"document": _DOCUMENT, "pattern": {"type": "string", "minLength": 1, "maxLength": 300}},
        ["document", "pattern"],
    ),
]


def questions_of(task: TaskSpec) -> list[Question]:
    """The questions of a task."""
    return [Question.from_data(raw) for raw in task.data["questions"]]


class SearchEnvironment(Environment):
    """See the module. `split`: facts of which documents, "train", "heldout" (about 15 %) or "all".

    Raises InputError for a folder that is no pool.
    """

    family = "search"
    tools = TOOLS
    pool = "documents"

    def __init__(self, pool_path: str | Path | None = None, split: str = "train") -> None:
        if pool_path is None:
            raise UsageError("the family search needs pool_path: the folder trajectories/search of a run")
        if split not in ("train", "heldout", "all"):
            raise UsageError(f"split {split!r} is unknown. Use train, heldout or all")
        self._index = SearchIndex(pool_path)
        self._split = split
        self._maker: QuestionMaker | None = None
        self._questions: list[Question] = []
        self._seen: set[str] = set()
        self._searches = 0
        self._answers: dict[int, str] = {}

    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        """See `Environment.generate`. Raises UsageError when the pool's split has no fact to ask about."""
        if not 1 <= difficulty <= 10:
            raise UsageError(f"difficulty {difficulty:g} is out of range: 1 to 10")
        if self._maker is None:
            self._maker = QuestionMaker(self._index, self._split)
        kinds = self._maker.kinds(hard=difficulty >= 2)
        if not kinds:
            counts = self._index.counts
            raise UsageError(
                f"the split {self._split} of the search pool has no facts ({counts['documents']} documents, "
                f"{counts['facts']} facts). Build the pool from a larger corpus"
            )
        generator = random.Random(f"search:{seed}:{difficulty:g}")  # noqa: S311 - seeded on purpose
        questions = self._drawn(generator, seed, difficulty, kinds)
        lines = [question.text for question in questions]
        if len(questions) == 1:
            instruction = f"{lines[0]}\nEnd with a line `Answer: …`."
        else:
            listed = "\n".join(f"{number}. {text}" for number, text in enumerate(lines, 1))
            instruction = f"{generator.choice(OPENINGS)}\n{listed}\nEnd with a line `Answer k: …` for each question k."
        support = {name for question in questions for name in question.support}
        licenses = sorted({self._license(name) for name in support} - {""})
        return TaskSpec(
            f"search-{seed}-{difficulty:g}",
            self.family,
            seed,
            difficulty,
            SYSTEM,
            instruction,
            {"questions": [question.to_data() for question in questions]},
            " AND ".join(licenses) or None,
        )

    def _drawn(self, generator: random.Random, seed: int, difficulty: float, kinds: list[str]) -> list[Question]:
        """Questions until the length that the difficulty aims at is reached; no two alike."""
        assert self._maker is not None
        left = target_bytes(difficulty) * generator.uniform(0.92, 1.08) - FIXED_BYTES
        reads = 0.0 if difficulty < 2.5 else min(1.0, difficulty / 8)
        questions: dict[str, Question] = {}
        tries = 0
        first = self._maker.simple(seed, generator) if difficulty < 4 else None
        if first is not None:  # seeds in a row ask about different facts
            questions[first.text] = first
            left -= cost_of(first, self._pages)
        while (not questions or left > 1_500) and tries < 4_000:
            tries += 1
            question = self._maker.question(generator.choice(kinds), generator, reads)
            if (
                question is None
                or question.text in questions
                or (tries < 200 and cost_of(question, self._pages) > max(left, 2_600))
            ):
                continue
            questions[question.text] = question
            left -= cost_of(question, self._pages)
        return list(questions.values())

    def _pages(self, name: str) -> list[int]:
        """Characters of every page of a document."""
        return [end - start for start, end in pages_of(self._index.text(self._index.by_name[name]))]

    def _license(self, name: str) -> str:
        return self._index.documents[self._index.by_name[name]].license or ""

    def reset(self, task: TaskSpec) -> str:
        """See `Environment.reset`. Raises UsageError when the task names a document that this pool does not have."""
        self._questions = questions_of(task)
        missing = sorted({n for q in self._questions for n in q.support if n not in self._index.by_name})
        if missing:
            raise UsageError(f"document {missing[0]} of the task is not in this pool. Use the pool it was made from")
        self._seen, self._searches, self._answers = set(), 0, {}
        return task.instruction

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """See `Environment.call`."""
        if name == "search":
            return self._search(**arguments)
        document = str(arguments["document"]).strip()
        number = self._index.by_name.get(document)
        if number is None:
            return ToolResult(f"Error: there is no document {document[:80]!r}. search shows the ids", True, "not_found")
        if name == "open":
            return self._open(number, int(arguments.get("page", 1)))
        return self._find(number, str(arguments["pattern"]))

    def _search(self, query: str, k: int = RESULTS) -> ToolResult:
        self._searches += 1
        if not words_of(query):
            return ToolResult("Error: the query has no word in it", True, "bad_arguments")
        found, total = self._index.search(query, k)
        if not found:
            return ToolResult("no document shares a word with the query", signal="empty")
        lines = [f"{len(found)} of {total} documents that share a word with the query, best first"]
        words = sorted(set(words_of(query)), key=lambda word: (len(self._index.with_word(word)) or 1 << 30, word))
        for place, number in enumerate(found, 1):
            document, text = self._index.documents[number], self._index.text(number)
            self._seen.add(document.name)
            pages = len(pages_of(text))
            lines.append(f"{place}. {document.name} “{document.title}” ({pages} page{'s' if pages > 1 else ''})")
            lines.append(f"   {_best_line(text, words)}")
        return ToolResult("\n".join(lines))

    def _open(self, number: int, page: int) -> ToolResult:
        document, text = self._index.documents[number], self._index.text(number)
        pages = pages_of(text)
        if page > len(pages):
            shown = f"{len(pages)} page{'s' if len(pages) > 1 else ''}"
            return ToolResult(f"Error: {document.name} has {shown}, page is {page}", True, "bad_arguments")
        self._seen.add(document.name)
        start, end = pages[page - 1]
        head = f"{document.name} “{document.title}”, page {page} of {len(pages)}"
        return ToolResult(f"{head}\n{text[start:end]}")

    def _find(self, number: int, pattern: str) -> ToolResult:
        document, text = self._index.documents[number], self._index.text(number)
        counts = [int(count) for count in re.findall(r"\d+", " ".join(re.findall(r"\{[\d,\s]+", pattern)))]
        if math.prod(max(1, count) for count in counts) > MOST_REPEATS:
            return ToolResult(f"Error: the pattern repeats more than {MOST_REPEATS} times", True, "bad_arguments")
        if _RECURSION.search(pattern):
            return ToolResult("Error: the pattern calls itself, which is not possible here", True, "bad_arguments")
        try:
            compiled = regex.compile(pattern, regex.IGNORECASE | regex.VERSION0)
        except (regex.error, ValueError, RecursionError, OverflowError, MemoryError) as error:
            return ToolResult(f"Error: the pattern is no regular expression: {error}", True, "bad_arguments")
        self._seen.add(document.name)
        ends = [end for _, end in pages_of(text)]
        hits: list[str] = []
        offset = page = total = 0
        deadline = time.monotonic() + FIND_SECONDS
        try:
            for line_number, line in enumerate(text.split("\n"), 1):
                while page < len(ends) - 1 and offset >= ends[page]:
                    page += 1
                offset += len(line) + 1
                if compiled.search(line, timeout=max(0.001, deadline - time.monotonic())):
                    total += 1
                    if len(hits) < MOST_LINES:
                        hits.append(f"page {page + 1}, line {line_number}: {line.strip()[:SNIPPET]}")
        except (TimeoutError, MemoryError):
            return ToolResult("Error: the pattern takes too long. Use a simpler one", True, "timeout")
        if not hits:
            return ToolResult(f"no line of {document.name} matches", signal="empty")
        head = f"{total} line{'s' if total > 1 else ''} of {document.name} match" + ("" if total > 1 else "es")
        return ToolResult("\n".join([head, *hits, *(["…"] if total > len(hits) else [])]))

    def answer(self, text: str) -> None:
        """See `Environment.answer`."""
        self._answers = answers_of(text)

    def verify(self) -> Outcome:
        """Compare the `Answer` lines and the documents seen; `reward` is the mean over the questions."""
        right = proved = 0
        for number, question in enumerate(self._questions, 1):
            given = self._answers.get(number, "")
            if any(same_text_answer(given, wanted) for wanted in (question.answer, *question.accept)):
                right += 1
                proved += self._seen.issuperset(question.support) and self._searches > 0
        total = len(self._questions)
        said = f"answers: {right} of {total} right, {proved} with all their documents seen"
        return Outcome(proved == total, (right + proved) / (2 * max(1, total)), said)

    def close(self) -> None:
        """See `Environment.close`."""
        self._index.close()


def _best_line(text: str, words: list[str]) -> str:
    """The first line with the query's rarest word that the document has, its start and end cut."""
    lowered = text.lower()
    for word in words:
        at = lowered.find(word)
        if at >= 0:
            at = min(at, len(text) - 1)  # lower() may lengthen a text by a few characters
            start = max(text.rfind("\n", 0, at) + 1, at - SNIPPET // 2)
            end = text.find("\n", at)
            return " ".join(text[start : end if end >= 0 else len(text)][:SNIPPET].split())
    return " ".join(text[:SNIPPET].split())
