"""The corpus job as Beam's portable pipeline, without a runner: its transforms by name, and what crosses a shuffle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.coders import StrUtf8Coder
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.textio import _TextSource
from apache_beam.options.pipeline_options import PipelineOptions
from click.testing import CliRunner

from datamix.commands.run import command as run_command
from pipelines.beam import (
    Classify,
    Decontaminate,
    Deduplicate,
    FilterQuality,
    Kept,
    ReplacePrivate,
    Reweight,
    WriteDocuments,
)
from pipelines.beam.engine import BeamEngine
from pipelines.beam.run import build, main, parse
from pipelines.corpus.batchwise import MixtureWhole
from pipelines.corpus.read.jsonl import read_jsonl
from pipelines.corpus.read.paths import find_files
from pipelines.corpus.read.records import Record
from schemas.errors import UsageError
from schemas.recipe import SourceConfig

EVERYTHING = (
    *("--output=/shared/out", "--spool=/shared/spool", "--model=/shared/m.bin", "--benchmark=/shared/b.jsonl"),
    *("--pii=email,key", "--language_model=/shared/lid.bin", "--languages=en"),
)


@pytest.fixture(scope="module")
def proto(tmp_path_factory: pytest.TempPathFactory) -> Any:
    data = tmp_path_factory.mktemp("data") / "in.jsonl"
    data.write_text('{"text": "words"}\n', encoding="utf-8")
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    build(pipeline, parse([f"--input={data}", *EVERYTHING])[0])
    return pipeline.to_runner_api()


def test_the_transforms_of_the_whole_job_are_the_ones_on_record(proto: Any, tree: Any, golden: Any) -> None:
    found = "\n".join(tree(proto)) + "\n"
    assert found == golden("transforms.txt", found)


def test_batches_cross_no_shuffle(proto: Any) -> None:
    collections = proto.components.pcollections
    urn = "beam:transform:group_by_key:v1"
    groups = [t for t in proto.components.transforms.values() if t.spec.urn == urn]
    by_place = sorted(t.unique_name.split("/")[0] for t in groups)
    assert by_place == ["Deduplicate", "Deduplicate", "ReadDocuments", "WriteDocuments", "WriteSetAside"]
    batches = {
        name
        for t in proto.components.transforms.values()
        if t.unique_name.rpartition("/")[2] in ("Judge", "Predict", "Search", "Replace", "Attach", "Rows")
        for name in t.outputs.values()
    }
    assert len(batches) >= 6 and batches <= set(collections)
    assert not batches & {name for t in groups for name in t.inputs.values()}


def test_a_file_system_that_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--input=ftp://my-bucket/in.jsonl", "--output=/shared/out"])
    assert code == 2
    assert "--input ftp://my-bucket/in.jsonl: Beam knows no file system of this kind" in capsys.readouterr().err


def test_a_bucket_as_run_folder_or_source_is_refused_with_the_command_that_does_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(run_command, ["recipe.yaml", "--out", "gs://my-bucket/run"])
    assert done.exit_code == 2
    assert "python -m pipelines.beam" in done.output
    config = SourceConfig(name="far", kind="jsonl", path="gs://my-bucket/in/*.jsonl")
    with pytest.raises(UsageError, match=r"source 'far': path 'gs://.*python -m pipelines\.beam"):
        find_files(config)


def test_dataflow_is_refused_where_its_workers_could_not_see_the_run_folder() -> None:
    flags = ("--runner=DataflowRunner", "--project=my-proj", "--region=us-central1", "--temp_location=gs://my-bucket/t")
    with pytest.raises(UsageError, match=r"Dataflow workers see no folder of this machine.*pipelines\.beam"):
        BeamEngine(2, flags)
    assert not BeamEngine(2, (*flags, "--dry_run=True")).local
    assert not BeamEngine(2, (*flags, "--sdk_container_image=registry.example.com/x:1")).local


@pytest.mark.parametrize("size", [1, 7, 64, 1024, 65_536])
def test_records_of_varied_length_with_crlf_are_read_once_whatever_the_split(tmp_path: Path, size: int) -> None:
    path = tmp_path / "crlf.jsonl"
    lines = [json.dumps({"id": n, "text": "x" * (n * 37 % 211)}) for n in range(120)]
    path.write_bytes("\r\n".join(lines).encode() + b"\r\n")
    source = _TextSource(str(path), 0, CompressionTypes.UNCOMPRESSED, True, StrUtf8Coder())
    bundles = source.split(size)
    pieces = [b.source.read(b.source.get_range_tracker(b.start_position, b.stop_position)) for b in bundles]
    read = [json.loads(line)["id"] for piece in pieces for line in piece]
    assert read == list(range(120)), "of Beam's own reader, which the example in docs/beam.md uses"
    config = SourceConfig(name="s", kind="jsonl", path=str(path))
    assert [record.fields["id"] for record in read_jsonl(str(path), config) if isinstance(record, Record)] == read


@pytest.mark.parametrize(
    "transform",
    [
        FilterQuality(),
        Deduplicate(),
        Classify("m.bin"),
        Decontaminate(["b.jsonl"]),
        ReplacePrivate(),
        Reweight({}, 100),
        Kept(),
        WriteDocuments("out"),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_what_are_no_batches_is_refused_when_the_pipeline_is_built(transform: Any) -> None:
    rows = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) | beam.Create([{"id": "a", "text": "b"}])
    with pytest.raises(beam.typehints.TypeCheckError, match=r"expected <class 'pyarrow\.lib\.RecordBatch'>"):
        _ = rows | transform


def test_reweight_takes_every_wish_of_a_recipe() -> None:
    rows = [
        {"id": f"{n:032x}", "domain": "web", "source": "ab"[n % 4 == 0], "tokens": 10, "quality": n % 10 / 10}
        for n in range(200)
    ]
    more = {"method": "temperature", "axis": "source", "min_quality": 0.35}
    whole = MixtureWhole(Reweight({}, 600, heldout_documents=0, heldout_share=0, **more).wish)
    batch = pa.RecordBatch.from_pylist(rows)
    ((_, columns),) = whole.decide([("place", whole.summarise(batch))], lambda _: [batch])
    used = [row["epochs"] for row in columns.to_pylist()]
    assert sum(10 * n for n in used) == 600
    assert not any(n for n, row in zip(used, rows, strict=True) if row["quality"] < 0.35)
    with pytest.raises(TypeError, match="no_such_field"):
        Reweight({}, 600, no_such_field=1)
