"""Recorded agent runs of many formats to canonical trajectories; `ingest_paths` is the entry."""

from pipelines.synthesis.ingest.read import find_files, ingest_paths, read_file
from pipelines.synthesis.ingest.records import SetAside

__all__ = ["SetAside", "find_files", "ingest_paths", "read_file"]
