"""datamix on Apache Beam."""

import logging

_root = logging.getLogger()


def _worth_saying(record: logging.LogRecord) -> bool:
    """False for what Beam says on import where its Google Cloud extra is not installed."""
    return "apitools not found" not in record.getMessage()


_root.addFilter(_worth_saying)
import apache_beam  # noqa: E402, F401

_root.removeFilter(_worth_saying)
