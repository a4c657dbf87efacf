"""Recipe models of the corpus half: sources, quality, dedup, classify, decontaminate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.recipe.base import Name, Share, Strict

__all__ = [
    "ClassifyConfig",
    "DecontaminateConfig",
    "DedupConfig",
    "LanguageConfig",
    "PiiConfig",
    "QualityConfig",
    "SourceConfig",
]


class SourceConfig(Strict):
    """Where documents come from.

    kind jsonl reads .jsonl, .jsonl.gz and .jsonl.zst; parquet reads .parquet; python-environment reads the
    running Python's standard library and installed packages and needs no path. `text`, `id`, `domain_field`,
    `license_field`, `language_field` name the keys or columns to read; `domain` and `license` are used for
    records that carry none. `limit_documents` reads only the first records (sorted paths, file order).
    `expected_tokens` is what is known of a source whose files are elsewhere: the plan counts with it, no step does.
    """

    name: Name
    kind: Literal["jsonl", "parquet", "python-environment"]
    path: str | None = None
    text: str = "text"
    id: str | None = "id"
    domain: str | None = None
    domain_field: str | None = None
    license: str | None = None
    license_field: str | None = "license"
    language_field: str | None = None
    packages: list[str] | None = None
    limit_documents: int | None = Field(default=None, ge=1)
    expected_tokens: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _path_goes_with_kind(self) -> SourceConfig:
        if self.kind == "python-environment" and self.path is not None:
            raise ValueError("kind python-environment takes no path: remove 'path'")
        if self.kind != "python-environment" and not self.path:
            raise ValueError(f"kind {self.kind} needs 'path': a file, a folder or a pattern such as data/*.jsonl.zst")
        if self.packages is not None and self.kind != "python-environment":
            raise ValueError(f"'packages' goes with kind python-environment, not {self.kind}")
        return self


class LanguageConfig(Strict):
    """Which languages prose may have, by a fasttext `model` (path of a .bin) and its labels.

    Prose whose best label is not in `keep`, or has a lower score than `min_score` (0.65: FineWeb, arXiv 2406.17557,
    section 3.3), is dropped. Code, formulas and mixtures with them are not judged.
    """

    model: str
    keep: list[str] = Field(min_length=1)
    min_score: Share = 0.65


class QualityConfig(Strict):
    """Which rule sets judge a document: gopher, gopher-repetition, c4, fineweb (prose), code, formula.

    A prose set judges prose only; what is code or formula is told from the text. `language` is judged first.
    """

    rules: list[Literal["gopher", "gopher-repetition", "c4", "fineweb", "code", "formula"]] = [
        "gopher",
        "code",
        "formula",
    ]
    language: LanguageConfig | None = None


class PiiConfig(Strict):
    """Personal data and keys to replace by placeholders where kept text is written: `pii: {}` means all four kinds."""

    replace: list[Literal["email", "ip", "phone", "key"]] = Field(default=["email", "ip", "phone", "key"], min_length=1)


class DedupConfig(Strict):
    """Exact and near duplicates.

    `threshold` is the Jaccard similarity of word shingles from which on a pair counts as duplicate. In a cluster of
    more than `largest_cluster` documents only direct duplicates of one that stays are removed, not those that are
    similar by way of others; a source that loses more than `warn_share` of its documents gets a warning.
    `signatures_out` names a Parquet file for datasketch signatures of the documents that stay; documents similar to one
    in `against_signatures`, such a file, are dropped by estimate.
    """

    threshold: float = Field(default=0.8, gt=0, le=1)
    shingle_words: int = Field(default=5, ge=1, le=50)
    permutations: int = Field(default=128, ge=16, le=1024)
    against: str | None = None
    against_signatures: str | None = None
    signatures_out: str | None = None
    largest_cluster: int = Field(default=1000, ge=2)
    warn_share: float = Field(default=0.5, ge=0, le=1)


Label = Annotated[str, Field(pattern=r"^[^\s\x00]+$", max_length=200)]
"""A label of a fasttext model: models of others have any character but white space."""


class ClassifyConfig(Strict):
    """`model: train` trains a fasttext classifier on the sources' domains in this run; else the path of a .bin."""

    model: str = "train"
    labels: list[Label] = ["math", "code", "science", "web"]


class DecontaminateConfig(Strict):
    """Benchmark files (jsonl or parquet) whose text must not be in the corpus, matched by n-grams of words."""

    benchmarks: list[str] = []
    shingle_words: int = Field(default=13, ge=3, le=50)
