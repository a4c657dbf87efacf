"""The step keeps every document without benchmarks, and names benchmark and span of what it drops."""

import json
from pathlib import Path

import pytest

from pipelines.corpus.decontaminate import step
from pipelines.corpus.tables import documents_part, iterate_batches, read_verdicts
from schemas.document import KEEP
from schemas.errors import InputError, UsageError

QUESTION = (
    "A farmer has seventeen sheep and buys twenty-four more at the spring market, then sells nine of them to a "
    "neighbour. How many sheep graze on the farm now?"
)
DOCUMENTS = [
    {"text": f"Some lines before.\n{QUESTION}\nSome lines after."},
    {"text": "A text about something else entirely, long enough to have a good number of word n-grams in it, truly."},
    {"text": QUESTION, "quality_verdict": "gopher:few_words"},
]


def _verdicts(context) -> dict[str, tuple]:
    found = {}
    for part in range(context.recipe.engine.partitions):
        texts = [t for b in iterate_batches(documents_part(context.run, part), ["text"]) for t in b[0].to_pylist()]
        rows = read_verdicts(context.run, "decontaminate", part).to_pylist()
        found |= {text: (r["verdict"], r["benchmark"], r["matched"]) for text, r in zip(texts, rows, strict=True)}
    return found


@pytest.fixture
def with_dedup(make_run):
    """`make_run` with a dedup step behind it."""
    from pipelines.corpus.dedup import step as dedup

    def build(documents, **parts):
        context = make_run(documents, **parts)
        dedup(context)
        return context

    return build


def test_no_benchmarks_keep_every_document(with_dedup) -> None:
    context = with_dedup(DOCUMENTS)
    output = step(context)
    assert output.counts["documents_in"] == output.counts["kept"] == 2
    assert output.counts["dropped"] == {}


def test_contaminated_document_names_benchmark_and_span(with_dedup, tmp_path: Path) -> None:
    path = tmp_path / "gsm.jsonl"
    path.write_text(json.dumps({"id": "q1", "question": "unrelated " * 20}) + "\n" + json.dumps({"question": QUESTION}))
    context = with_dedup(DOCUMENTS, decontaminate={"benchmarks": [str(path)]})
    output = step(context)
    assert output.counts["dropped"] == {"contaminated": 1}
    assert output.counts["by_benchmark"] == {"gsm.jsonl": 1}
    verdicts = _verdicts(context)
    assert verdicts[DOCUMENTS[0]["text"]] == ("contaminated", "gsm.jsonl#2", QUESTION.rstrip("?"))
    assert verdicts[DOCUMENTS[1]["text"]] == (KEEP, None, None)
    assert verdicts[DOCUMENTS[2]["text"]] == (None, None, None)


def test_missing_benchmark_is_a_usage_error(with_dedup) -> None:
    with pytest.raises(UsageError, match=r"decontaminate\.benchmarks\.0.*no-such"):
        step(with_dedup(DOCUMENTS, decontaminate={"benchmarks": ["no-such.jsonl"]}))


def test_benchmark_record_that_cannot_be_read_stops_the_step(with_dedup, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"question": "fine"}\n{"question": \n')
    with pytest.raises(InputError, match=r"bad\.jsonl:2"):
        step(with_dedup(DOCUMENTS, decontaminate={"benchmarks": [str(path)]}))
