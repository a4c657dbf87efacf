"""Promise 1: one recipe gives byte-equal files on Beam and on datatrove, with one worker and with two."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamix.run import run_job
from filters.text.classify import Example, TrainSettings, train_model
from pipelines.engine import Engine, open_engine
from schemas.progress import Quiet
from schemas.recipe import Recipe

NOTES = {"timings.json", "inputs.json"}  # clock and file times: not results
ENGINES = (("datatrove", 1), ("datatrove", 2), ("beam", 1), ("beam", 2))
SENTENCES = {
    "web": "The {a} went to the {b} and found that the {c} was not there; the people of the town had seen it before.",
    "math": "Let {a} be a group and {b} its subgroup; then the order of {b} divides {c}, which proves the theorem.",
    "code": "def {a}(self, {b}):\n    if {b} is None:\n        raise ValueError('{c}')\n    return self.{c}[{b}]\n",
}
MODEL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
}


def documents(seed: int, count: int) -> list[dict[str, Any]]:
    """Texts of three domains; every fourth is a near copy of the one before, every ninth an exact one."""
    rng = random.Random(seed)
    names = [f"{a}{b}" for a in ("har", "sil", "mon", "cor", "ta") for b in ("vest", "ver", "key", "ner", "ble", "lem")]
    rows: list[dict[str, Any]] = []
    for number in range(count):
        domain = ("web", "math", "code")[number % 3]
        parts = [
            SENTENCES[domain].format(a=rng.choice(names), b=rng.choice(names), c=rng.choice(names)) for _ in range(14)
        ]
        text = "\n".join(parts)
        if number % 4 == 3:
            domain, text = rows[-1]["domain"], rows[-1]["text"] + "\n" + parts[0]
        if number % 9 == 8:
            domain, text = rows[-1]["domain"], rows[-1]["text"]
        rows.append({"id": f"r{number}", "text": text, "domain": domain, "license": "MIT"})
    return rows


def recipe_of(name: str, folder: Path, **parts: Any) -> Recipe:
    base: dict[str, Any] = {
        "name": name,
        "seed": 11,
        "engine": {"partitions": 3},
        "mixture": {"shares": {"math": 0.4, "code": 0.4, "web": 0.2}, "budget_tokens": 4000, "max_epochs": 2},
        "classify": {"labels": ["math", "code", "web"]},
        "tokenizer": {"train": {"vocab_size": 400}},
        "curriculum": {"pretrain": [{"context_tokens": 256, "budget_tokens": 4000}]},
        "evaluate": {"tasks": 0},
        "model": MODEL,
    }
    return Recipe.model_validate({**base, **parts})


def language_model(folder: Path) -> Path:
    """Calls our prose en and the same backwards de."""
    settings = TrainSettings(dimensions=8, epochs=20, buckets=1000)
    texts = [row["text"].replace("\n", " ") for row in documents(9, 30) if row["domain"] == "web"]
    examples = [Example(f"{n}", "s", "en", "en", text) for n, text in enumerate(texts)]
    examples += [Example(f"b{n}", "s", "de", "de", text[::-1]) for n, text in enumerate(texts)]
    train_model(examples, ["de", "en"], settings, folder / "lid.bin", folder / "work")
    (folder / "card.json").unlink()
    return folder / "lid.bin"


def jsonl_recipe(folder: Path) -> Recipe:
    """Two JSON Lines files with bad records, blank lines and odd characters; addresses replaced; target shares."""
    odd = ["line\u2028end and\u2029more words here", "nul \0 inside of this text", "", None, 7]
    for number, rows in enumerate((documents(1, 40), documents(2, 20))):
        for row in rows[::5]:
            row["text"] += f"\n# Write to {row['id']}@uni-x.edu, call +49 170 1234567"
        lines = [json.dumps(row) for row in rows] + [json.dumps({"id": n, "text": t}) for n, t in enumerate(odd)]
        path = folder / f"{number}.jsonl.gz"
        path.write_bytes(gzip.compress("\r\n\n".join([*lines, "{broken"]).encode(), mtime=0))
    source = {"name": "lines", "kind": "jsonl", "path": str(folder / "*.jsonl.gz"), "domain_field": "domain"}
    return recipe_of("jsonl", folder, sources=[source], pii={})


def parquet_recipe(folder: Path) -> Recipe:
    """Parquet, every rule set, languages, a reference set and a benchmark, more partitions than some have documents."""
    rows = documents(3, 36)
    rows += [{**row, "id": f"back{n}", "text": row["text"][::-1]} for n, row in enumerate(rows[:9])]
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    reference = [{"id": "old", "text": rows[0]["text"]}]
    benchmark = [{"text": rows[1]["text"][:400]}]
    for name, records in (("reference.jsonl", reference), ("benchmark.jsonl", benchmark)):
        (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return recipe_of(
        "parquet",
        folder,
        engine={"partitions": 12},
        sources=[
            {"name": "rows", "kind": "parquet", "path": str(folder / "rows.parquet"), "domain_field": "domain"},
        ],
        quality={
            "rules": ["gopher", "gopher-repetition", "c4", "fineweb", "code", "formula"],
            "language": {"model": str(language_model(folder)), "keep": ["en"], "min_score": 0.5},
        },
        dedup={"threshold": 0.7, "against": str(folder / "reference.jsonl")},
        decontaminate={"benchmarks": [str(folder / "benchmark.jsonl")]},
        mixture={"method": "proportional", "budget_tokens": 3000},
    )


def single_recipe(folder: Path) -> Recipe:
    """One partition, two sources, no rule, strict on bad records."""
    for number in range(2):
        rows = documents(4 + number, 15)
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return recipe_of(
        "single",
        folder,
        on_error="fail",
        engine={"partitions": 1},
        quality={"rules": []},
        dedup={"threshold": 1.0, "shingle_words": 3, "permutations": 32},
        sources=[
            {"name": f"s{n}", "kind": "jsonl", "path": str(folder / f"{n}.jsonl"), "domain_field": "domain"}
            for n in range(2)
        ],
    )


class Shared:
    """An engine whose processes outlive a run: a run closes its engine, and starting them again is most of the cost."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name, self.map = engine, engine.name, engine.map


@pytest.fixture(scope="module")
def engines() -> Any:
    opened: dict[tuple[str, int], Engine] = {}

    def engine(name: str, workers: int) -> Engine:
        if (name, workers) not in opened:
            opened[name, workers] = open_engine(name, workers)
        return Shared(opened[name, workers])

    yield engine
    for each in opened.values():
        each.close()  # type: ignore[attr-defined]


def files_of(run: Path) -> dict[str, bytes]:
    found = {p.relative_to(run).as_posix(): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
    return {name: data for name, data in found.items() if name not in NOTES}


@pytest.mark.parametrize(
    ("make", "until"), [(jsonl_recipe, "reweight"), (parquet_recipe, "reweight"), (single_recipe, "corpus")]
)
def test_every_engine_and_worker_count_writes_the_same_bytes(
    make: Any, until: str, engines: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    recipe = make(folder)
    runs: dict[str, dict[str, bytes]] = {}
    for name, workers in ENGINES:
        run = tmp_path / f"{name}-{workers}"
        run_job(recipe, run, Quiet(), until=until, engine=engines(name, workers))
        runs[run.name] = files_of(run)
    first = runs["datatrove-1"]
    parts = recipe.engine.partitions
    kinds = ["documents", "verdicts/quality", "verdicts/dedup", "verdicts/classify", "corpus/kept", "corpus/dropped"]
    for kind in [*kinds, *(["mixture"] if until == "reweight" else [])]:
        assert sum(name.startswith(f"{kind}/part-") for name in first) == parts, kind
    for name, found in runs.items():
        assert found.keys() == first.keys(), name
        assert [path for path in found if found[path] != first[path]] == [], name


def test_what_is_compared_has_languages_and_replacements(engines: Any, tmp_path: Path) -> None:
    counts: dict[str, Any] = {}
    for make, step in ((jsonl_recipe, "corpus"), (parquet_recipe, "quality")):
        folder = tmp_path / make.__name__
        folder.mkdir()
        run_job(make(folder), folder / "run", Quiet(), until=step, engine=engines("datatrove", 1))
        counts |= json.loads((folder / f"run/manifests/{step}.json").read_text(encoding="utf-8"))["counts"]
    assert counts["replaced"]["email"] >= 5 and counts["replaced"]["phone"] >= 5
    assert counts["languages"]["de"] >= 3 and counts["languages"]["en"] >= 3
    assert counts["dropped"]["language:de"] >= 3


def test_what_is_compared_has_kept_and_dropped_documents(engines: Any, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    run = tmp_path / "run"
    run_job(jsonl_recipe(folder), run, Quiet(), until="corpus", engine=engines("beam", 1))
    counts = json.loads((run / "manifests/corpus.json").read_text(encoding="utf-8"))["counts"]
    assert counts["dropped"]["duplicate:exact"] >= 3
    assert counts["dropped"]["duplicate:near"] >= 3
    assert set(counts["kept_by_domain"]) == {"math", "code", "web"}
    assert len((run / "set_aside/read.jsonl").read_bytes().splitlines()) == 8
