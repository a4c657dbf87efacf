"""The step as a whole: partitions, order, origins, limits, sources that are not there, any number of workers.

Promise 7 of DESIGN §4, the documents half: one bad record never ends a run; it is named, counted and kept aside.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.corpus import tables
from pipelines.corpus.read import spill
from pipelines.corpus.read.paths import find_files
from pipelines.corpus.read.records import Document
from pipelines.corpus.read.spill import SpillWriter, merge_runs
from pipelines.trove.executor import TroveEngine
from schemas.document import DOCUMENT_SCHEMA, document_id, partition_of
from schemas.errors import DatamixError, InputError, UsageError
from schemas.recipe import SourceConfig


def write_corpus(folder: Path, files: int = 4, each: int = 60) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        lines = [json.dumps({"text": f"text {n % 50} of {number % 3}", "id": n}) for n in range(each)]
        lines.insert(each // 2, "broken")
        (folder / f"part-{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_documents_lie_in_the_partition_of_their_id_sorted_by_id_and_origin(read: Any, tmp_path: Path) -> None:
    done = read({"path": str(write_corpus(tmp_path / "in"))}, partitions=5)
    for part in range(5):
        table = pq.read_table(tables.documents_part(done.run, part))
        assert table.schema.equals(DOCUMENT_SCHEMA, check_metadata=True)
        rows = table.to_pylist()
        assert [partition_of(row["id"], 5) for row in rows] == [part] * len(rows)
        keys = [(row["id"], row["origin"]) for row in rows]
        assert keys == sorted(keys)
        assert len(set(keys)) == len(keys), "equal texts of one source are told apart by their origin"
        assert all(row["id"] == document_id(row["text"], "s0") for row in rows)
        assert {row["verdict"] for row in rows} | {row["domain"] for row in rows} <= {None}
    assert done.counts["documents_by_source"] == {"s0": 240}
    assert done.counts["set_aside"] == {"bad_json": 4}
    assert [(Path(p["path"]).name, p["line"]) for p in done.problems] == [(f"part-{n}.jsonl", 31) for n in range(4)]


def test_one_and_two_workers_and_small_buffers_give_the_same_bytes(
    read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"path": str(write_corpus(tmp_path / "in"))}
    alone = read(source, folder="one")
    engine = TroveEngine(workers=2)
    try:
        assert read(source, folder="two", engine=engine).files() == alone.files()
    finally:
        engine.close()
    monkeypatch.setattr(spill, "SPILL_BYTES", 2_000)
    monkeypatch.setattr(spill, "MERGE_BYTES", 900)
    assert read(source, folder="small").files() == alone.files()


def test_a_run_that_was_killed_in_the_middle_is_read_again_to_the_same_bytes(read: Any, tmp_path: Path) -> None:
    source = {"path": str(write_corpus(tmp_path / "in"))}
    whole = read(source, folder="whole").files()
    left = tmp_path / "again" / "spill" / "read"
    left.mkdir(parents=True)
    (left / "task-000000.arrow").write_bytes(b"half")
    (left / "task-000099.jsonl").write_bytes(b'{"old": 1}\n')
    stale = tmp_path / "again" / "documents" / "part-00009.parquet"
    stale.parent.mkdir()
    stale.write_bytes(b"of an earlier recipe")
    assert read(source, folder="again").files() == whole


@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=40),
    size=st.sampled_from([1, 1_000, 10_000]),
    merge=st.sampled_from([1, 700, 10_000]),
)
def test_spilling_and_merging_loses_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, merge: int
) -> None:
    folder = tmp_path_factory.mktemp("spill")
    documents = [
        Document(document_id(t, "s"), None, t, "s", f"f#{n}", "MIT", None, None, 0) for n, t in enumerate(texts)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "SPILL_BYTES", size)
        patch.setattr(spill, "MERGE_BYTES", merge)
        runs: list[tuple[str, int, int, int]] = []
        for name, half in (("a", documents[::2]), ("b", documents[1::2])):
            with SpillWriter(folder / name, partitions=2) as writer:
                for document in half:
                    writer.add(document)
            runs += [(str(folder / name), n, rows, part) for n, (part, rows) in enumerate(writer.runs)]
        merged = [
            (row["id"], row["origin"], row["text"])
            for part in (0, 1)
            for batch in merge_runs([run[:3] for run in runs if run[3] == part])
            for row in batch.to_pylist()
        ]
    expected = sorted((partition_of(d.id, 2), d.id, d.origin, d.text) for d in documents)
    assert merged == [row[1:] for row in expected]


def test_origins_are_relative_to_what_the_recipe_gave(
    read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "in" / "deep", files=1, each=1)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "in" / "deep" / "part-0.jsonl"
    for number, path in enumerate(
        [file, tmp_path / "in" / "deep", "in/deep/*.jsonl", tmp_path / "in" / "*" / "*.jsonl"]
    ):
        done = read({"path": str(path)}, folder=f"r{number}")
        origin = "deep/part-0.jsonl#2" if number == 3 else "part-0.jsonl#2"
        assert [row["origin"] for row in done.rows] == [origin]


def test_files_come_in_the_same_order_from_folder_and_pattern(tmp_path: Path) -> None:
    for name in (
        "b/x.jsonl",
        "a/y.jsonl.gz",
        "a.jsonl",
        "a/.hidden.jsonl",
        ".git/z.jsonl",
        "a/readme.md",
        "c/z.parquet",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    in_folder = find_files(SourceConfig(name="s", kind="jsonl", path=str(tmp_path)))
    assert [file.relative for file in in_folder] == ["a.jsonl", "a/y.jsonl.gz", "b/x.jsonl"]
    by_pattern = find_files(SourceConfig(name="s", kind="jsonl", path=f"{tmp_path}/**/*.jsonl*"))
    assert [file.relative for file in by_pattern] == ["a.jsonl", "a/y.jsonl.gz", "b/x.jsonl"]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("nowhere.jsonl", "no such file or folder"),
        ("empty", "the folder has no file named \\*.jsonl"),
        ("none/*.jsonl", "no file matches .*none, which does not exist"),
    ],
)
def test_a_source_that_is_not_there_is_a_usage_error_naming_it(read: Any, tmp_path: Path, path: str, what: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=rf"source 's0': path '{tmp_path}/.*': {what}") as caught:
        read({"path": f"{tmp_path}/{path}"})
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_a_limit_takes_the_first_documents_in_file_order(read: Any, tmp_path: Path) -> None:
    source = {"path": str(write_corpus(tmp_path / "in", files=3, each=10))}
    done = read({**source, "limit_documents": 14})
    assert sorted(row["origin"] for row in done.rows) == sorted(
        [f"part-0.jsonl#{n}" for n in range(1, 12) if n != 6] + [f"part-1.jsonl#{n}" for n in range(1, 5)]
    )
    assert done.counts["set_aside"] == {"bad_json": 1}
    assert read({**source, "limit_documents": 999}, folder="all").counts["documents"] == 30


def test_a_source_of_which_no_record_is_usable_is_an_error_not_an_empty_corpus(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "x"}\n{"body": "y"}\n')
    with pytest.raises(InputError) as caught:
        read({"path": str(path)})
    assert str(caught.value) == (
        f"{path}:1: field 'text': source 's0': none of its 2 records can be used; the first one: missing field, "
        "received keys: body. Check the source's path and its 'text' key or column"
    )


def test_sources_without_any_record_are_an_error_before_anything_is_paid_for(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n\n")
    with pytest.raises(InputError, match=r"no document in any source \('s0'\): the files hold no record"):
        read({"path": str(path)})


def test_two_sources_keep_their_own_ids_licences_and_domains(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "same", "license": "MIT"}\n{"text": "other"}\n')
    done = read({"path": str(path), "license": "CC0-1.0", "domain": "math"}, {"path": str(path), "license_field": None})
    found = {(row["source"], row["text"]): (row["license"], row["source_domain"]) for row in done.rows}
    assert found == {
        ("s0", "same"): ("MIT", "math"),
        ("s0", "other"): ("CC0-1.0", "math"),
        ("s1", "same"): (None, None),
        ("s1", "other"): (None, None),
    }
    assert len({row["id"] for row in done.rows}) == 4


def test_a_killed_reader_ends_the_step_and_leaves_no_document(
    read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        name = "dying"

        def map(self, function: Any, tasks: Any, **options: Any) -> Any:
            function(tasks[0])
            raise DatamixError("the worker process of task 1 was ended by SIGKILL")

    with pytest.raises(DatamixError, match="SIGKILL"):
        read({"path": str(write_corpus(tmp_path / "in"))}, engine=Dying())
    assert not [p for p in (tmp_path / "run").rglob("*") if p.is_file()]


def test_the_shared_sample_is_read_whole(read: Any) -> None:
    sample = Path(__file__).parents[4] / "../shared/data/corpus/sample.jsonl.zst"
    if not sample.exists():
        pytest.skip("the sample corpus is not beside the repository; the other tests do not need it")
    done = read({"path": str(sample), "domain_field": "domain", "limit_documents": 3000})
    assert done.counts["documents"] == 3000
    assert done.counts["set_aside"] == {}
    assert {row["source_domain"] for row in done.rows} <= {"math", "code", "science", "web"}
    assert all(row["license"] and row["source_id"] for row in done.rows)
