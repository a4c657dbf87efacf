"""From samples of the sources to a mixture: every sampled place is a document of the size it stands for.

The same algebra as the reweight step then says shares, epochs and shortfalls, for all stages. Nothing is tokenized:
tokens are bytes over a ratio, by domain, measured once (BYTES_PER_TOKEN) or given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from datamix.plan_sample import SourceSample, sample_source
from filters.text.mixing import MixtureWish, mix, mix_stages
from pipelines.corpus.quality import language_rule
from pipelines.corpus.read.records import Document
from pipelines.corpus.reweight import END_OF_TEXT_TOKENS, NO_DOMAIN, wish_of, wishes_of
from schemas.document import KEEP
from schemas.recipe import Recipe, SourceConfig

__all__ = ["BYTES_PER_TOKEN", "Supply", "bytes_per_token", "mixture_of", "supply_of"]

VOCABULARIES = (1024, 4096, 8192, 32_768, 43_153)
BYTES_PER_TOKEN: dict[str, tuple[float, ...]] = {
    "code": (2.143, 2.825, 3.179, 3.682, 3.738),
    "math": (1.851, 2.358, 2.566, 2.863, 2.897),
    "science": (2.154, 2.915, 3.242, 3.690, 3.744),
    "web": (2.231, 2.863, 3.163, 3.620, 3.678),
}
"""UTF-8 bytes a token of our byte-level BPE at VOCABULARIES, measured on text of four domains (source code and manuals;
proofs, formal mathematics and word problems; scientific prose; reference prose) that it was not trained on."""
RATIO_ERROR = 0.15  # between corpora of one domain; beyond the vocabularies measured it is RATIO_ERROR_BEYOND
RATIO_ERROR_BEYOND = 0.30
UNKNOWN_PLACES = 64  # pseudo-documents of a source that is not here


@dataclass(slots=True)
class Supply:
    """Columns over sampled places that are kept: what they stand for. `unknown`: sources of which nothing is known."""

    domains: npt.NDArray[np.object_]
    sources: npt.NDArray[np.object_]
    tokens: npt.NDArray[np.float64]
    documents: npt.NDArray[np.float64]
    quality: npt.NDArray[np.float64]
    figures: dict[str, dict[str, Any]]
    unknown: list[str]
    ratio_error: float
    ratios: dict[str, float]
    sampling: dict[tuple[str, str], float]  # ("domain" or "source", name): variance of its tokens from sampling


def bytes_per_token(domain: str, vocabulary: int) -> float:
    """The measured ratio, between vocabularies by their logarithm; the mean of the domains for one not measured."""
    known = BYTES_PER_TOKEN.get(domain)
    values = known or tuple(sum(column) / len(column) for column in zip(*BYTES_PER_TOKEN.values(), strict=True))
    return float(np.interp(math.log2(vocabulary), np.log2(VOCABULARIES), values))


def supply_of(recipe: Recipe, vocabulary: int, count: int, ratio: float | None = None) -> Supply:
    """Sample all sources (`count` places each; 0 reads none), judge quality, and turn bytes into tokens.

    Cost: some seconds a thousand places, most of it for the quality rules.
    """
    ratios: dict[str, float] = {}
    columns: dict[str, list[Any]] = {name: [] for name in ("domain", "source", "tokens", "documents", "quality")}
    figures: dict[str, dict[str, Any]] = {}
    unknown: list[str] = []
    sampling: dict[tuple[str, str], float] = {}
    predict = _predictor(recipe)
    for source in recipe.sources:
        sample = sample_source(source, count, recipe.seed) if count else SourceSample(source.name)
        verdicts, quality = _judged(sample, recipe)
        domains = predict(sample)
        kept: list[tuple[str, float]] = []
        for row, verdict, score, domain in zip(sample.rows, verdicts, quality, domains, strict=True):
            ratios.setdefault(domain, ratio or bytes_per_token(domain, vocabulary))
            tokens = row.bytes / ratios[domain] + row.documents * END_OF_TEXT_TOKENS
            kept.append((domain, tokens if verdict == KEEP else 0.0))
            if verdict == KEEP:
                for name, value in zip(columns, (domain, source.name, tokens, row.documents, score), strict=True):
                    columns[name].append(value)
        if not sample.rows and source.expected_tokens is not None:
            _expect(columns, source, source.expected_tokens)
        elif not sample.rows:
            unknown.append(source.name)
        _add_variances(sampling, source.name, kept)
        figures[source.name] = _figures(sample, source, verdicts, kept)
    beyond = vocabulary > VOCABULARIES[-1] or vocabulary < VOCABULARIES[0]
    return Supply(
        np.array(columns["domain"], object),
        np.array(columns["source"], object),
        np.array(columns["tokens"], float),
        np.array(columns["documents"], float),
        np.array(columns["quality"], float),
        figures,
        unknown,
        0.0 if ratio else RATIO_ERROR_BEYOND if beyond else RATIO_ERROR,
        dict(sorted(ratios.items())),
        sampling,
    )


def _judged(sample: SourceSample, recipe: Recipe) -> tuple[list[str], list[float]]:
    """Verdict and score of every place; a document that lies at several places is judged once."""
    from filters.text.quality import judge

    ids = sorted({row.document.id: row.document.text for row in sample.rows}.items())
    texts = pa.array([text for _, text in ids], pa.large_string())
    language = recipe.quality.language
    rule = language_rule(language) if language is not None and Path(language.model).is_file() else None
    found = judge(texts, recipe.quality.rules, language=rule)
    known = {
        name: (verdict, score)
        for (name, _), verdict, score in zip(ids, found.verdict.to_pylist(), found.quality.to_pylist(), strict=True)
    }
    pairs = [known[row.document.id] for row in sample.rows]
    return [verdict for verdict, _ in pairs], [score for _, score in pairs]


def _predictor(recipe: Recipe) -> Any:
    """Domains of a sample: by the recipe's model where it is a file that is there.

    Else as the sources claim, corrected by what the texts are, as the labels are that a run trains its classifier on.
    """
    path = Path(recipe.classify.model)
    if recipe.classify.model == "train" or not path.is_file():
        from filters.text.classify import training_label

        def claimed(document: Document) -> str:
            given = document.source_domain
            return training_label(document.text, given, recipe.classify.labels) if given else NO_DOMAIN

        return lambda sample: [claimed(row.document) for row in sample.rows]
    from filters.text.classify import DomainModel
    from pipelines.corpus.batch_judges import DomainPredictor

    DomainModel.load(path, recipe.classify.labels)  # other labels are refused here as they are in a run
    model = DomainPredictor(path)

    def predict(sample: SourceSample) -> list[str]:
        texts = pa.array([row.document.text for row in sample.rows], pa.large_string())
        found: list[str] = model(pa.record_batch({"text": texts})).column("domain").to_pylist()
        return found

    return predict


def _expect(columns: dict[str, list[Any]], source: SourceConfig, tokens: int) -> None:
    """Places of a source that is elsewhere: equal parts of its expected tokens, of a quality that passes everything."""
    for _ in range(UNKNOWN_PLACES):
        values = (source.domain or NO_DOMAIN, source.name, tokens / UNKNOWN_PLACES, 0.0, math.nan)
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)


def _add_variances(sampling: dict[tuple[str, str], float], source: str, kept: Sequence[tuple[str, float]]) -> None:
    """A sum over n places has n times the variance of one; places one in each stretch have less, so this is a bound."""
    values = np.array([tokens for _, tokens in kept], float)
    if len(values) < 2:
        return
    sampling["source", source] = len(values) * float(values.var(ddof=1))
    for domain in sorted({domain for domain, _ in kept}):
        own = np.where(np.array([other == domain for other, _ in kept]), values, 0.0)
        key = ("domain", domain)
        sampling[key] = sampling.get(key, 0.0) + len(own) * float(own.var(ddof=1))


def _figures(
    sample: SourceSample, source: SourceConfig, verdicts: Sequence[str], kept: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    weights = [row.bytes for row in sample.rows]
    dropped: dict[str, float] = {}
    for weight, verdict in zip(weights, verdicts, strict=True):
        if verdict != KEEP:
            dropped[verdict] = dropped.get(verdict, 0.0) + weight
    total = sum(weights)
    return {
        "supply": "sample" if sample.rows else "expected" if source.expected_tokens else "unknown",
        "files": sample.files,
        "files_read": sample.files_read,
        "read_whole": sample.whole and bool(sample.files),
        "bytes_on_disk": sample.disk_bytes,
        "places": len(sample.rows),
        "text_bytes": round(sample.text_bytes),
        "documents": round(sample.documents),
        "dropped_bytes": {reason: round(value / total, 6) for reason, value in sorted(dropped.items())},
        "unreadable_records": dict(sorted(sample.problems.items())),
        "tokens": round(sum(tokens for _, tokens in kept)) if sample.rows else source.expected_tokens,
    }


def mixture_of(recipe: Recipe, supply: Supply) -> dict[str, Any]:
    """The report of the reweight step on what the sample stands for (`filters.text.mixing_report`).

    Held-out documents are taken off the supply. A source of which nothing is known counts as large enough for
    everything asked of it, in the domain that it claims (or in all of them).
    """
    wishes = wishes_of(recipe)
    domains, sources = supply.domains.tolist(), supply.sources.tolist()
    held = _heldout_share(recipe, supply)
    tokens = [round(t * (1 - held.get(d, 0.0))) for t, d in zip(supply.tokens.tolist(), domains, strict=True)]
    quality = supply.quality.tolist()
    named = {source.name: source for source in recipe.sources}
    enough = recipe.mixture.budget_tokens // UNKNOWN_PLACES + 1
    for name in supply.unknown:
        claimed = named[name].domain
        for domain in [claimed] if claimed else recipe.classify.labels:
            domains += [domain] * UNKNOWN_PLACES
            sources += [name] * UNKNOWN_PLACES
            tokens += [enough] * UNKNOWN_PLACES
            quality += [math.nan] * UNKNOWN_PLACES
    ids = [f"{source}:{number}" for number, source in enumerate(sources)]
    columns = (ids, np.array(domains, object), np.array(sources, object), np.array(tokens, np.int64))
    scores = np.array(quality, float)
    if wishes:
        return mix_stages(
            *columns, {name: _whole(wish) for name, wish in wishes.items()}, scores, divisible=True
        ).report
    return mix(*columns, _whole(wish_of(recipe)), scores, divisible=True).report


def _whole(wish: MixtureWish) -> MixtureWish:
    return replace(wish, heldout_share=0.0, heldout_documents=0)


def _heldout_share(recipe: Recipe, supply: Supply) -> Mapping[str, float]:
    """The part of each domain's documents that is held out, as `filters.text.mixture.heldout_mask` takes them."""
    shares = {}
    for domain in sorted(set(supply.domains.tolist())):
        count = float(supply.documents[supply.domains == domain].sum())
        wanted = max(recipe.evaluate.heldout_documents, recipe.evaluate.heldout_share * count)
        shares[domain] = min(wanted, count / 2) / count if count >= 1 else recipe.evaluate.heldout_share
    return shares
