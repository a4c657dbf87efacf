"""datamix on Apache Beam: transforms for anyone's pipeline, `run(argv)`, and the engine of `datamix run`.

transforms  FilterQuality, Deduplicate, Classify, Decontaminate, ReplacePrivate, Reweight, Kept: batches in and out
functions   what they run on workers
documents   ReadDocuments, WriteDocuments, WriteSetAside: files of any of Beam's file systems
run         the corpus job as one pipeline: `python -m pipelines.beam`
engine      BeamEngine: the tasks of a recipe's steps as pipelines
twopass     decisions that must see the whole corpus, without shuffling its text
storage     files, spool;  shipping  this code on distant workers;  harness, tasks  what the engine runs on
"""

# ruff: noqa: E402, I001  (Beam is imported first, without its notice)
from __future__ import annotations

import logging

_root = logging.getLogger()


def _worth_saying(record: logging.LogRecord) -> bool:
    """False for what Beam says on import where its Google Cloud extra is not installed."""
    return "apitools not found" not in record.getMessage()


_root.addFilter(_worth_saying)
import apache_beam  # noqa: F401

_root.removeFilter(_worth_saying)

from pipelines.beam.transforms import (
    Classify,
    Decontaminate,
    Deduplicate,
    FilterQuality,
    Kept,
    ReplacePrivate,
    Reweight,
)
from pipelines.beam.documents import ReadDocuments, WriteDocuments, WriteSetAside
from pipelines.beam.run import run

__all__ = [
    "Classify",
    "Decontaminate",
    "Deduplicate",
    "FilterQuality",
    "Kept",
    "ReadDocuments",
    "ReplacePrivate",
    "Reweight",
    "WriteDocuments",
    "WriteSetAside",
    "run",
]
