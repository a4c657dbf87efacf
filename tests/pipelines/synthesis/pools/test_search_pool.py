"""The search pool: which documents are taken, what is known of them, and that it is whole, bounded and repeatable."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.synthesis.environments.search_facts import GAP, facts_of, other_names
from pipelines.synthesis.environments.search_index import PAGE_CHARACTERS, SearchIndex, pages_of, words_of
from pipelines.synthesis.pools.search import build_search_pool
from schemas.document import DOCUMENT_SCHEMA, document_id, partition_of
from schemas.errors import InputError, UsageError

CODE = '''"""A module."""
import os

LIMIT_OF_ROWS = 42
NAME_OF_FILE = "out.txt"
computed = os.getpid()


class Harvester(Reaper, metaclass=Meta):
    """Collects."""

    field = 3

    def collect(self, rows):
        return rows

    async def finish(self):
        return None


def gather_rows(source, limit=10, *, strict=True, other=os.sep):
    return source
'''


def write_corpus(folder: Path, texts: list[tuple[str, str]], partitions: int) -> list[Path]:
    """A kept corpus of (origin, text) in parts."""
    rows: list[list[dict[str, object]]] = [[] for _ in range(partitions)]
    for origin, text in texts:
        key = document_id(text, "t")
        rows[partition_of(key, partitions)].append(
            {"id": key, "text": text, "source": "t", "origin": origin, "license": "MIT"}
        )
    folder.mkdir(parents=True)
    paths = []
    for number, part in enumerate(rows):
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(sorted(part, key=lambda r: str(r["id"])), DOCUMENT_SCHEMA), path)
        paths.append(path)
    return paths


def prose(number: int) -> str:
    """A short text with names and a year of its own."""
    word = hashlib.sha256(str(number).encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))[:9]
    return (
        f"{word.title()} is a harbour town on the northern coast, known for its {word[::-1]} festival.\n\n"
        f"The bridge of {word.title()} was finished in the year {1400 + number} by a guild of masons from abroad. "
        "Visitors come for the market, which is held on the first Sunday of every month in summer.\n"
    ) + "Much of the rest is like everywhere else.\n" * 3


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.parametrize("written", ["0x4000", "1_000", "-0b11", "1.50", "3e2"])
def test_numbers_are_stated_as_the_document_writes_them(written: str) -> None:
    text = f"\x0c\nLIMIT_OF_ROWS = {written}\ndef gather(limit={written}, *, name='x'):\n    pass\n"
    constant, function = facts_of(text, lambda word: 1)
    assert (constant["value"], function["defaults"]) == (written, {"limit": written, "name": "'x'"})
    assert text[constant["at"] :].startswith("LIMIT_OF_ROWS")


def test_facts_of_code_are_its_definitions() -> None:
    facts = {fact["subject"]: fact for fact in facts_of(CODE, lambda word: 1)}
    assert set(facts) == {"LIMIT_OF_ROWS", "NAME_OF_FILE", "Harvester", "gather_rows"}
    assert (facts["LIMIT_OF_ROWS"]["value"], facts["NAME_OF_FILE"]["value"]) == ("42", "'out.txt'")
    assert (facts["Harvester"]["bases"], facts["Harvester"]["methods"]) == (["Reaper"], 2)
    assert facts["gather_rows"]["defaults"] == {"limit": "10", "strict": "True"}
    assert facts["gather_rows"]["parameters"] == 4
    assert CODE[facts["Harvester"]["at"] :].startswith("class Harvester")


def test_names_beside_the_facts_are_all_that_could_be_meant_by_a_question() -> None:
    assert set(other_names(CODE)) == {("constant", "computed"), ("function", "collect"), ("function", "finish")}
    text = (
        "import os\nLIMIT = 1\nif os.name:\n    LIMIT = 2\nelse:\n    def gather(): pass\n"
        "FIRST = SECOND = 3\nTHIRD: int = 4\nFOURTH, FIFTH = 5, 6\n"
        "class Outer:\n    SIXTH = 7\n    class Inner:\n        pass\n"
        "def lone():\n    SEVENTH = 8\n    return [EIGHTH for EIGHTH in ()]\n"
    )
    assert sorted(other_names(text)) == [
        ("class", "Inner"),
        *(("constant", name) for name in ("FIFTH", "FIRST", "FOURTH", "LIMIT", "SECOND", "THIRD")),
        ("function", "gather"),
    ]
    assert list(other_names("It says:\n\n    def gather(rows):\n  class Barn {")) == [
        ("function", "gather"),
        ("class", "Barn"),
    ]


def test_what_another_definition_could_be_meant_by_is_no_fact_of_a_pool(tmp_path: Path) -> None:
    body = "    rows = list(source)\n" * 60
    plain = f"import os\n\ndef gather_rows(source):\n{body}\n\ndef winnow_rows(source, sieve):\n{body}"
    method = (
        f"import os\n\nclass Harvester:\n    def gather_rows(self, one, two):\n    {body.replace('    ', '        ')}"
    )
    parts = write_corpus(tmp_path / "kept", [("a.py", plain), ("b.py", method)], 1)
    build_search_pool(parts, tmp_path / "pool", 500, 10_000_000)
    lines = (tmp_path / "pool" / "facts.jsonl").read_text().splitlines()
    subjects = {json.loads(line)["subject"] for line in lines}
    assert "winnow_rows" in subjects
    assert "gather_rows" not in subjects


def test_facts_of_prose_are_sentences_with_a_gap() -> None:
    rare = {"lowestoft": 1, "masons": 2, "guild": 3}
    text = "A line.\n\nThe bridge of Lowestoft was finished in 1487 by a guild of masons from abroad. It stands."
    (fact,) = facts_of(text, lambda word: rare.get(word, 900))
    assert fact["sentence"] == f"The bridge of Lowestoft was finished in {GAP} by a guild of masons from abroad."
    assert (fact["answer"], fact["number"], fact["words"][0]) == ("1487", True, "Lowestoft")
    assert text[fact["at"] :].startswith("Lowestoft")
    assert list(facts_of("x = {", lambda word: 1)) == []
    assert list(facts_of("", lambda word: 1)) == []


def test_pages_hold_whole_lines_and_lose_nothing() -> None:
    text = "".join(f"line {n} {'x' * (n % 90)}\n" for n in range(400)) + "y" * 12_000
    pages = pages_of(text)
    assert "".join(text[a:b] for a, b in pages) == text
    assert max(b - a for a, b in pages) <= PAGE_CHARACTERS
    assert all(text[b - 1] == "\n" for _, b in pages[:4])
    assert pages_of("") == [(0, 0)]


def test_a_plain_prose_corpus_gives_a_pool_that_finds_its_facts(tmp_path: Path) -> None:
    parts = write_corpus(tmp_path / "kept", [(f"a.jsonl#{n}", prose(n)) for n in range(90)], 3)
    out = tmp_path / "search"
    counts = build_search_pool(parts, out, standard_library_too=False)
    assert (counts["documents"], counts["standard_library"]) == (90, 0)
    assert counts["facts_by_kind"].keys() == {"gap"}
    index = SearchIndex(out)
    facts = index.facts()
    assert len(facts) == counts["facts"] >= 90
    years = [fact for fact in facts if fact["number"]]
    assert len(years) == 90
    for fact in facts[::7]:
        assert fact["document"] in index.search(" ".join(fact["words"]), 5)[0]
        assert fact["answer"] in index.text(fact["document"])
    assert index.search("harbour", 3)[1] == 90
    assert index.search("unheardof", 3) == ([], 0)
    index.close()


def test_same_corpus_same_bytes_and_equal_scores_go_by_document(tmp_path: Path) -> None:
    texts = [(f"pkg/m{n}.py#1", CODE.replace("Harvester", f"Harvester{n}")) for n in range(40)]
    parts = write_corpus(tmp_path / "kept", texts, 2)
    build_search_pool(parts, tmp_path / "one", standard_library_too=False)
    build_search_pool(list(parts), tmp_path / "one", standard_library_too=False)  # over an older one
    build_search_pool(parts, tmp_path / "two", standard_library_too=False)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    assert not list(tmp_path.glob(".tmp-*"))
    index = SearchIndex(tmp_path / "one")
    found, total = index.search("collect rows", 10)
    assert total == 40
    assert found == sorted(found)
    assert index.documents[0].title.startswith("pkg/m")
    index.close()


def test_the_pool_is_bounded_and_does_not_depend_on_partitions(tmp_path: Path) -> None:
    texts = [(f"a.jsonl#{n}", prose(n)) for n in range(120)] + [("long#1", "x" * 70_000), ("short#1", "y")]
    chosen = []
    for partitions in (1, 4):
        parts = write_corpus(tmp_path / f"kept{partitions}", texts, partitions)
        out = tmp_path / f"search{partitions}"
        counts = build_search_pool(parts, out, most_documents=50, standard_library_too=False)
        assert counts["left_out"] == {"beyond_the_pools_size": 70, "too_long": 1, "too_short": 1}
        index = SearchIndex(out)
        chosen.append([document.id for document in index.documents])
        index.close()
    assert len(chosen[0]) == 50
    assert chosen[0] == chosen[1]
    counts = build_search_pool(parts, tmp_path / "small", most_characters=6_000, standard_library_too=False)
    assert counts["characters"] <= 6_000


def test_a_corpus_with_too_little_gets_the_standard_library(tmp_path: Path) -> None:
    parts = write_corpus(tmp_path / "kept", [("a#1", prose(1))], 1)
    counts = build_search_pool(parts, tmp_path / "search", most_documents=60)
    assert counts["standard_library"] >= 59
    assert counts["facts_by_kind"]["function"] > 20


def test_what_cannot_be_used_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    parts = write_corpus(tmp_path / "kept", [("a#1", "too short")], 1)
    with pytest.raises(UsageError, match="no fact to ask about"):
        build_search_pool(parts, tmp_path / "search", standard_library_too=False)
    assert not (tmp_path / "search").exists()
    broken = tmp_path / "broken.parquet"
    broken.write_text("no table")
    with pytest.raises(InputError, match=r"broken\.parquet.*not a part of a corpus"):
        build_search_pool([broken], tmp_path / "search", standard_library_too=False)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"text": ["a"]}), other)
    with pytest.raises(InputError, match=r"not a part of a corpus \(it has no column id"):
        build_search_pool([other], tmp_path / "search", standard_library_too=False)
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_folder_that_is_no_pool_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a search pool"):
        SearchIndex(tmp_path)
    parts = write_corpus(tmp_path / "kept", [(f"a#{n}", prose(n)) for n in range(3)], 1)
    build_search_pool(parts, tmp_path / "search", standard_library_too=False)
    index = SearchIndex(tmp_path / "search")
    (tmp_path / "search" / "facts.jsonl").write_text('{"kind": "gap"}\n{"kind"')
    with pytest.raises(InputError, match=r"facts\.jsonl:2: not a fact"):
        index.facts()
    (tmp_path / "search" / "index" / "vocab.index.json").unlink()
    with pytest.raises(InputError, match="not an index"):
        index.search("harbour", 3)
    index.close()
    pool = tmp_path / "search" / "pool.json"
    pool.write_text(pool.read_text().replace('"version":1', '"version":9'))
    with pytest.raises(InputError, match="version 9"):
        SearchIndex(tmp_path / "search")


def test_words_are_lower_case_identifiers() -> None:
    assert words_of("Ed25519PublicKey.from_bytes(x) — Größe 3.14") == [
        "ed25519publickey",
        "from_bytes",
        "x",
        "größe",
        "3",
        "14",
    ]
