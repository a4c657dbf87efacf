"""Canonical trajectories to what training frameworks read; `convert_file` is the entry."""

from pipelines.synthesis.convert.run import ConvertReport, convert_file
from pipelines.synthesis.convert.targets import TARGETS

__all__ = ["TARGETS", "ConvertReport", "convert_file"]
