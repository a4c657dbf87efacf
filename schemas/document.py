"""Document: one text with its origin, its licence and what datamix found out about it.

The Arrow schema below is the file format of every corpus file (Parquet). `version` rises when a column
changes meaning; readers refuse a newer version instead of guessing.
"""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import xxhash

__all__ = [
    "DOCUMENT_SCHEMA",
    "DOCUMENT_VERSION",
    "KEEP",
    "document_id",
    "normalise_text",
    "partition_of",
]

DOCUMENT_VERSION = "1"
KEEP = "keep"  # the verdict of a document that stays; every other verdict is the reason it was dropped

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),  # 128-bit hash of normalised text and source, 32 hex digits
        pa.field("source_id", pa.string()),  # the id that the input carried, as it was
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),  # path or url, '#', row
        pa.field("license", pa.string()),
        pa.field("language", pa.string()),
        pa.field("source_domain", pa.string()),  # the domain that the source claims: the classifier's training label
        pa.field("domain", pa.string()),  # the domain that the classifier gives
        pa.field("domain_score", pa.float32()),
        pa.field("quality", pa.float32()),  # 0 (worst) to 1 (best), from the quality rules
        pa.field("tokens", pa.int64()),  # of the run's tokenizer, without the end-of-text token
        pa.field("cluster", pa.string()),  # id of the near-duplicate cluster's keeper; null when alone
        pa.field("verdict", pa.string()),  # KEEP or a drop reason
    ],
    metadata={"datamix.record": "document", "datamix.version": DOCUMENT_VERSION},
)


def normalise_text(text: str) -> str:
    """The form of a text that its id is computed from: NFC, line ends as \\n, outer white space removed.

    Lone surrogates survive NFC and are kept (hashed by 'surrogatepass'), so no input is refused.
    """
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def document_id(text: str, source: str) -> str:
    """128-bit xxh3 of the normalised text and the source name, as 32 hex digits.

    Two equal texts of one source share an id; `origin` tells the rows apart.
    """
    name = source.encode("utf-8", "surrogatepass")
    text_bytes = normalise_text(text).encode("utf-8", "surrogatepass")
    payload = b"%d:" % len(name) + name + text_bytes
    return xxhash.xxh3_128_hexdigest(payload)


def partition_of(record_id: str, partitions: int) -> int:
    """Which of `partitions` output files a hex id belongs to: depends on the id alone."""
    return int(record_id[:15], 16) % partitions
