"""`datamix dedup|quality|classify|decontaminate` on plain files: kept/, dropped/, summary.json, and clear refusals."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamix.cli import main

WORDS = [
    f"{a}{b}" for a in ("har", "sil", "mon", "cor", "ta", "pil", "gar", "den") for b in ("vest", "ver", "key", "ble")
]
NEARDUP = Path(__file__).parents[2] / "../shared/data/neardup"


def prose(seed: int, count: int = 120) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice([*WORDS, "the", "of", "and", "to"]) + str(rng.randrange(50)) for _ in range(count))


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def call(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def summary_of(*arguments: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, out, err = call(*arguments, "--workers", 1, "--json", capsys=capsys)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["source_id"]: row for row in pq.read_table(folder).to_pylist()}


def test_dedup_names_the_row_that_stays_and_the_similarity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = prose(1) + " and three more words"
    jsonl = write(tmp_path / "a.jsonl", [{"id": 1, "text": prose(1)}, {"id": 2, "text": prose(2)}, {"id": 3}])
    rows = [{"id": "p", "text": long, "other": 1}, {"id": "q", "text": prose(2), "other": 2}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "b.parquet")
    out = tmp_path / "out"
    found = summary_of("dedup", jsonl, tmp_path / "b.parquet", "--out", out, capsys=capsys)
    assert (found["documents_in"], found["kept"]) == (4, 2)
    assert found["dropped"] == {"duplicate:exact": 1, "duplicate:near": 1}
    assert found["set_aside"] == {"missing_field": 1}
    assert json.loads((out / "summary.json").read_text(encoding="utf-8")) == {
        k: v for k, v in found.items() if k != "out"
    }
    assert json.loads((out / "set_aside.jsonl").read_text(encoding="utf-8"))["line"] == 3
    kept, dropped = rows_of(out / "kept"), rows_of(out / "dropped")
    assert dropped["1"]["duplicate_of_source_id"] == "p"
    assert dropped["1"]["duplicate_of"] == kept["p"]["id"]
    assert dropped["1"]["similarity"] == pytest.approx(116 / 120)
    assert {*kept, *dropped} == {"1", "2", "p", "q"}
    assert {row["verdict"] for row in kept.values()} == {"keep"}
    assert sorted(path.name for path in out.iterdir()) == ["dropped", "kept", "set_aside.jsonl", "summary.json"]


@pytest.mark.parametrize(("old", "new"), [(30, 2), (2, 30)])
def test_dedup_against_a_reference_never_removes_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: int, new: int
) -> None:
    reference = write(tmp_path / "old.jsonl", [{"id": f"old{n}", "text": prose(n)} for n in range(old)])
    fresh = [{"id": f"new{n}", "text": prose(n) + " tail"} for n in range(new)]
    rows = write(tmp_path / "new.jsonl", fresh)
    out = tmp_path / "out"
    found = summary_of("dedup", rows, "--against", reference, "--out", out, capsys=capsys)
    shared = min(old, new)
    assert (found["documents_in"], found["kept"]) == (new, new - shared)
    assert found["dropped"] == {"duplicate:near": shared}
    dropped = rows_of(out / "dropped")
    assert {name: row["duplicate_of"] for name, row in dropped.items()} == {f"new{n}": f"old{n}" for n in range(shared)}
    assert {round(row["similarity"], 5) for row in dropped.values()} == {round(116 / 117, 5)}
    assert sorted(rows_of(out / "kept")) == sorted(f"new{n}" for n in range(shared, new))


def test_quality_says_which_rule_was_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "The people of the town went to the river and found that the water was cold and clear in the morning. "
    rows = [{"id": "good", "text": sentence * 8}, {"id": "short", "text": "The cat sat on the mat with the dog."}]
    out = tmp_path / "out"
    found = summary_of("quality", write(tmp_path / "a.jsonl", rows), "--rules", "gopher", "--out", out, capsys=capsys)
    assert found["kept"] + sum(found["dropped"].values()) == found["documents_in"] == 2
    assert rows_of(out / "dropped")["short"]["verdict"].startswith("gopher:")
    assert 0 < rows_of(out / "kept")["good"]["quality"] <= 1


def test_decontaminate_names_benchmark_and_matched_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = prose(7, 40)
    benchmark = write(tmp_path / "bench.jsonl", [{"question": item}])
    rows = [{"id": "leak", "text": f"{prose(8)} {item} {prose(9)}"}, {"id": "clean", "text": prose(10)}]
    out = tmp_path / "out"
    data = write(tmp_path / "a.jsonl", rows)
    found = summary_of("decontaminate", data, "--benchmark", benchmark, "--out", out, capsys=capsys)
    assert (found["kept"], sum(found["dropped"].values())) == (1, 1)
    leak = rows_of(out / "dropped")["leak"]
    assert leak["benchmark"].endswith("bench.jsonl#1:question")
    assert leak["matched"]
    assert list(rows_of(out / "kept")) == ["clean"]


def test_classify_trains_a_model_and_predicts_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics = {"math": "theorem proof lemma group integer", "web": "town shop street people weather"}
    rng = random.Random(3)
    rows = [
        {"id": f"{label}{n}", "text": " ".join(rng.choice(words.split()) for _ in range(40)), "topic": label}
        for label, words in topics.items()
        for n in range(40)
    ]
    data = write(tmp_path / "a.jsonl", rows)
    models = [tmp_path / name / "m.bin" for name in ("one", "two")]
    for model in models:
        card = summary_of("classify", "train", data, "--label-field", "topic", "--out", model, capsys=capsys)
    assert card["labels"] == ["math", "web"]
    assert card["counts"] == {"math": 40, "web": 40}
    assert models[0].read_bytes() == models[1].read_bytes()
    assert sorted(p.name for p in models[0].parent.iterdir()) == ["card.json", "m.bin"]
    out = tmp_path / "out"
    found = summary_of("classify", data, "--model", models[0], "--out", out, capsys=capsys)
    assert found["domains"] == {"math": 40, "web": 40}
    assert all(
        name.startswith(row["domain"]) and row["domain_score"] > 0.5 for name, row in rows_of(out / "kept").items()
    )


def test_results_are_replaced_and_a_foreign_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "a.jsonl", [{"id": n, "text": prose(n)} for n in range(5)])
    out = tmp_path / "out"
    first = summary_of("dedup", data, "--out", out, capsys=capsys)
    files = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert summary_of("dedup", data, "--out", out, capsys=capsys) == first
    assert {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()} == files
    code, _, err = call("dedup", data, "--out", tmp_path, capsys=capsys)
    assert code == 2 and "holds 'a.jsonl'" in err


def test_wrong_use_is_said_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "a.jsonl", [{"id": 1, "body": "x y z"}])
    out = tmp_path / "out"
    code, _, err = call("dedup", tmp_path / "none.jsonl", "--out", out, capsys=capsys)
    assert code == 2 and "none.jsonl' names no file" in err
    code, _, err = call("dedup", data, "--out", out, "--workers", 1, capsys=capsys)
    assert code == 1 and "missing field" in err and "body" in err
    code, _, err = call("quality", data, "--rules", "gofer", "--text", "body", "--out", out, capsys=capsys)
    assert code == 2 and "gofer" in err
    code, _, err = call("classify", data, "--model", tmp_path / "m.bin", "--out", out, capsys=capsys)
    assert code == 2 and "classify train" in err
    code, _, err = call("classify", "train", data, "--text", "body", "--out", tmp_path / "m.bin", capsys=capsys)
    assert code == 1 and "no record has a label" in err
    assert not (out / "summary.json").exists()
    assert not (tmp_path / "m.bin").exists()


@pytest.mark.skipif(not NEARDUP.is_dir(), reason="the developers' truth set is not here")
def test_removal_agrees_with_exact_jaccard_on_the_truth_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    summary_of("dedup", NEARDUP / "neardup.parquet", "--threshold", 0.8, "--out", out, capsys=capsys)
    pairs = pq.read_table(NEARDUP / "neardup_pairs.parquet").to_pylist()
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for pair in pairs:
        if pair["jaccard"] >= 0.8:
            parent[root(pair["a"])] = root(pair["b"])
    sizes: dict[str, int] = {}
    gone: dict[str, int] = {}
    dropped = set(rows_of(out / "dropped"))
    for name in [*parent]:
        sizes[root(name)] = sizes.get(root(name), 0) + 1
        gone[root(name)] = gone.get(root(name), 0) + (name in dropped)
    right = sum(min(size - 1, gone[name]) for name, size in sizes.items())
    assert right / len(dropped) >= 0.99
    assert right / sum(size - 1 for size in sizes.values()) >= 0.99


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("decontaminate", ["--benchmark", "none.jsonl"], "--benchmark: 'none.jsonl' names no file"),
        ("dedup", ["--against", "none.jsonl"], "--against: 'none.jsonl' names no file"),
        ("quality", ["--language-model", "none.bin", "--languages", "en"], "--language-model none.bin: no such file"),
        ("classify", ["--model", "none.bin"], "--model none.bin: no such file"),
    ],
)
def test_a_further_file_that_does_not_exist_is_said_before_texts_are_read(
    command: str, options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write(tmp_path / "a.jsonl", [{"text": "x"}, {"no": "text"}]), tmp_path / "out"
    code, _, err = call(command, data, *options, "--out", out, "--workers", 1, capsys=capsys)
    assert code == 2
    assert err.startswith(f"datamix: {said}")  # and no word yet about the record without a text
    assert not out.exists()
