"""Identity of documents: what counts as the same text, and where a document goes."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.document import DOCUMENT_SCHEMA, document_id, normalise_text, partition_of


def test_id_ignores_line_ends_outer_space_and_unicode_composition() -> None:
    assert document_id("café\r\nx\n", "s") == document_id("  cafe\u0301\nx", "s")


def test_id_differs_by_source_and_by_inner_space() -> None:
    assert document_id("a b", "s") != document_id("a b", "t")
    assert document_id("a b", "s") != document_id("a  b", "s")


def test_source_and_text_cannot_be_confused() -> None:
    assert document_id("b", "a\0") != document_id("\0b", "a")


def test_lone_surrogate_has_an_id() -> None:
    assert len(document_id("\ud800", "s")) == 32


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise_text(text)
    assert normalise_text(once) == once


@given(st.text(), st.integers(1, 1000))
def test_partition_is_in_range_and_depends_on_the_id_alone(text: str, partitions: int) -> None:
    record = document_id(text, "s")
    assert 0 <= partition_of(record, partitions) < partitions
    assert partition_of(record, partitions) == int(record[:15], 16) % partitions


def test_schema_names_its_version() -> None:
    assert DOCUMENT_SCHEMA.metadata[b"datamix.version"] == b"1"
    assert DOCUMENT_SCHEMA.field("text").nullable is False
