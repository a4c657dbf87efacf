"""The corpus job as one Beam pipeline: `python -m pipelines.beam --input … --output …`, or `run(argv)`.

Known flags are read here; every other one goes to Beam and its runner unseen. Paths may be of any file system that
Beam knows. Kept and dropped documents are those of a recipe with the same settings, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.runner import PipelineResult

from pipelines.beam.documents import ReadDocuments, WriteDocuments, WriteSetAside
from pipelines.beam.engine import is_local_run, is_only_built, pipeline_options
from pipelines.beam.functions import NAMESPACE
from pipelines.beam.shipping import ship_package
from pipelines.beam.storage import is_local
from pipelines.beam.transforms import Classify, Decontaminate, Deduplicate, FilterQuality, ReplacePrivate
from schemas.errors import DatamixError, UsageError

__all__ = ["build", "main", "parse", "run"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.beam",
        description="Quality, dedup, classification and decontamination of documents as one Beam pipeline.",
        epilog="Every other flag goes to Beam: --runner, --project, --region, --temp_location, …",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--input", required=True, help="file, folder or pattern of jsonl or parquet")
    add("--output", required=True, help="folder for kept/, dropped/ and set_aside.jsonl")
    add("--source", default="input", help="name of the corpus: enters the ids (default input)")
    add("--kind", choices=("jsonl", "parquet"), help="default: parquet for *.parquet, else jsonl")
    add("--text", default="text", help="key or column of the text")
    add("--id", default="id", help="key or column of the id")
    add("--domain", help="key or column of the domain that the source claims")
    add("--rules", default="gopher,code,formula", help="quality rule sets, or none")
    add("--language_model", help="fasttext .bin: judge the language of prose by it")
    add("--languages", default="", help="labels of the language model that stay, such as en,de")
    add("--min_language_score", type=float, default=0.65)
    add("--threshold", type=float, default=0.8, help="Jaccard similarity of duplicates; 0 leaves dedup out")
    add("--shingle_words", type=int, default=5)
    add("--permutations", type=int, default=128)
    add("--model", help="fasttext .bin: classify with it")
    add("--benchmark", action="append", default=[], help="decontaminate: a file of benchmark items; repeatable")
    add("--pii", default="", help="replace in kept texts: of email,ip,phone,key")
    add("--partitions", type=int, default=8, help="output files of each kind")
    add("--spool", help="folder for batches between passes, seen by all workers (default: --temp_location)")
    add("--on_error", choices=("skip", "fail"), default="skip")
    add("--workers", type=int, default=1, help="processes of the local runner")
    return parser


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Our flags, and those for Beam."""
    return _parser().parse_known_args(argv)


def build(pipeline: beam.Pipeline, given: argparse.Namespace) -> Any:
    """Apply the transforms; gives the PCollection of paths written."""
    batches, set_aside = pipeline | "ReadDocuments" >> ReadDocuments(
        given.input,
        source=given.source,
        kind=given.kind,
        text=given.text,
        id=given.id,
        domain=given.domain,
        on_error=given.on_error,
    )
    batches = batches | "FilterQuality" >> FilterQuality(
        [name for name in _names(given.rules) if name != "none"],
        language_model=given.language_model,
        languages=_names(given.languages),
        min_language_score=given.min_language_score,
        keep_dropped=True,
    )
    if given.threshold:
        batches = batches | "Deduplicate" >> Deduplicate(
            given.threshold,
            shingle_words=given.shingle_words,
            permutations=given.permutations,
            partitions=given.partitions,
            spool=given.spool,
            keep_dropped=True,
        )
    if given.model:
        batches = batches | "Classify" >> Classify(given.model)
    if given.benchmark:
        batches = batches | "Decontaminate" >> Decontaminate(given.benchmark, keep_dropped=True)
    if given.pii:
        batches = batches | "ReplacePrivate" >> ReplacePrivate(_names(given.pii))
    documents = batches | "WriteDocuments" >> WriteDocuments(
        given.output, partitions=given.partitions, spool=given.spool
    )
    aside = set_aside | "WriteSetAside" >> WriteSetAside(FileSystems.join(given.output, "set_aside.jsonl"))
    return (documents, aside) | "Written" >> beam.Flatten()


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def run(argv: Sequence[str] | None = None) -> PipelineResult:
    """Build the pipeline from `argv` (default: the command line) and run it to its end; returns Beam's result.

    With options that only build a job (dry run, template) it returns at once. Counters are in `result.metrics()`,
    namespace "datamix". Raises what the transforms and Beam raise.
    """
    given, flags = parse(argv)
    _check_file_systems(given)
    options = pipeline_options(flags, given.workers)
    if given.workers > 1 and is_local_run(options):  # one long pipeline: Beam's own processes, started once, will do
        options.view_as(DirectOptions).direct_running_mode = "multi_processing"
    if not is_local_run(options):
        ship_package(options)
    pipeline = beam.Pipeline(options=options)
    build(pipeline, given)
    result = pipeline.run()
    if not is_only_built(options):
        result.wait_until_finish()
    return result


def _check_file_systems(given: argparse.Namespace) -> None:
    named = [(name, getattr(given, name)) for name in ("input", "output", "model", "language_model", "spool")]
    for name, path in [*named, *(("benchmark", path) for path in given.benchmark)]:
        if path and not is_local(path):
            try:
                FileSystems.get_filesystem(path)
            except ValueError:
                raise UsageError(
                    f"--{name} {path}: Beam knows no file system of this kind here. For gs:// install: "
                    "pip install 'datamix[gcp]'"
                ) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print the counters as JSON. Returns the exit code: 1 the work failed, 2 wrong usage."""
    try:
        result = run(argv)
    except DatamixError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    counters = result.metrics().query()["counters"] if hasattr(result, "metrics") else []
    named = {c.key.metric.name: c.committed for c in counters if c.key.metric.namespace == NAMESPACE}
    sys.stdout.write(json.dumps(dict(sorted(named.items())), indent=1) + "\n")
    return 0
