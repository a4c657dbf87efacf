"""Jobs submitted to Dataflow, run as the service gets them: the results are those of a local run, byte for byte."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from datamix.cli import main
from pipelines.beam import run
from pipelines.corpus.standalone import Inputs, train_classifier
from pipelines.engine import InProcess
from schemas.progress import Quiet

DATAFLOW = ("--runner=DataflowRunner", "--project=my-proj", "--region=us-central1", "--no_auth")
NAMES = [f"{a}{b}" for a in ("har", "sil", "mon", "cor") for b in ("vest", "ver", "key", "ner", "ble")]
SENTENCE = "The {} went to the {} and found that the {} was not there."
SETTINGS = ("--domain=domain", "--partitions=2", "--threshold=0.7", "--pii=email", "--kind=jsonl", "--source=mine")


def write_inputs(folder: Path) -> None:
    """data/0.jsonl.gz, data/1.jsonl.gz with near and exact copies and bad records; m/m.bin; bench.jsonl."""
    rng = random.Random(2)
    rows: list[dict[str, Any]] = []
    for number in range(24):
        text = " ".join(SENTENCE.format(*rng.sample(NAMES, 3)) for _ in range(10)) + " Write to a@uni-x.edu."
        if number % 6 == 5:
            text = rows[-1]["text"] + " again" * (number % 4)
        rows.append({"id": f"d{number}", "text": text, "domain": ("web", "math")[number % 2]})
    (folder / "data").mkdir()
    for number in range(2):
        lines = [json.dumps(row) for row in rows[number::2]] + ["{broken", '{"id": "no text"}']
        (folder / f"data/{number}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    (folder / "bench.jsonl").write_text(json.dumps({"question": rows[7]["text"][:200]}) + "\n", encoding="utf-8")
    (folder / "m").mkdir()
    train_classifier(Inputs([str(folder / "data")]), folder / "m/m.bin", InProcess(), Quiet())


OUTPUTS = [f"{kind}/part-{part:05d}.parquet" for kind in ("kept", "dropped") for part in range(2)]


def test_a_job_over_buckets_gives_the_files_of_a_local_run(
    tmp_path: Path, dataflow: Any, bucket: str, files: Any
) -> None:
    write_inputs(tmp_path)
    near = [f"--input={tmp_path / 'data'}", f"--output={tmp_path / 'out'}", f"--model={tmp_path / 'm/m.bin'}"]
    run([*near, f"--benchmark={tmp_path / 'bench.jsonl'}", *SETTINGS, "--runner=FnApiRunner"])
    for name in ("data/0.jsonl.gz", "data/1.jsonl.gz", "m/m.bin", "m/card.json", "bench.jsonl"):
        files.put(tmp_path / name, f"{bucket}/in/{name}")
    far = [f"--input={bucket}/in/data/", f"--output={bucket}/out", f"--model={bucket}/in/m/m.bin"]
    places = [f"--temp_location={bucket}/tmp", f"--staging_location={bucket}/staging"]
    service = [f"--dataflow_endpoint={dataflow.endpoint}", "--sdk_location=container", "--labels=team=corpus"]
    result = run([*far, f"--benchmark={bucket}/in/bench.jsonl", *SETTINGS, *DATAFLOW, *places, *service])
    assert result.state == "DONE"
    for name in OUTPUTS:
        assert files.get(f"{bucket}/out/{name}") == (tmp_path / "out" / name).read_bytes(), name
    theirs = [json.loads(line) for line in files.get(f"{bucket}/out/set_aside.jsonl").splitlines()]
    ours = [json.loads(line) for line in (tmp_path / "out/set_aside.jsonl").read_bytes().splitlines()]
    assert [row.pop("path") for row in theirs] == [f"{bucket}/in/data/{n}.jsonl.gz" for n in (0, 0, 1, 1)]
    assert [row.pop("path") for row in ours] == [str(tmp_path / f"data/{n}.jsonl.gz") for n in (0, 0, 1, 1)]
    assert theirs == ours
    (job,) = dataflow.jobs
    assert job["labels"] == {"team": "corpus"}
    staged = {package["name"] for package in job["environment"]["workerPools"][0]["packages"]}
    assert "workflow.tar.gz" in staged, "this code, for the workers"


RECIPE = """
name: tiny
seed: 1
engine: {partitions: 2}
sources: [{name: mine, kind: jsonl, path: INPUT}]
mixture: {method: proportional, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 300}}
curriculum: {}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""


def test_a_step_of_a_recipe_goes_through_the_service_where_workers_see_the_run_folder(
    tmp_path: Path, dataflow: Any
) -> None:
    write_inputs(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("INPUT", str(tmp_path / "data")), encoding="utf-8")
    command = ["run", str(recipe), "--until", "read", "--out"]
    for folder in ("tmp", "staging"):
        (tmp_path / folder).mkdir()
    places = [f"--temp_location={tmp_path / 'tmp'}", f"--staging_location={tmp_path / 'staging'}"]
    image = "--sdk_container_image=registry.example.com/datamix:1"  # one that mounts the shared folder
    flags = [*DATAFLOW, *places, f"--dataflow_endpoint={dataflow.endpoint}", image]
    with pytest.raises(SystemExit) as far:
        main([*command, str(tmp_path / "far"), "--engine", "beam", "--", *flags])
    with pytest.raises(SystemExit) as near:
        main([*command, str(tmp_path / "near"), "--workers", "1"])
    assert (far.value.code, near.value.code) == (0, 0)
    assert [job["environment"]["workerPools"][0]["workerHarnessContainerImage"] for job in dataflow.jobs] == [
        "registry.example.com/datamix:1"
    ] * 2
    for part in range(2):
        name = f"documents/part-{part:05d}.parquet"
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
