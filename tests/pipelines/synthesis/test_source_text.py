"""Where things stand in a source: lines and columns as Python counts them."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.synthesis.environments.source_text import SourceText, parse_quietly


@pytest.mark.parametrize(
    "before",
    ["x = 1\n\x0c\n", "x = '\u2028\x85'\n", "x = 1  # \x1c \x1d \x0b\n", "x = 'ü漢'\r\n", "x = 1\r"],
)
def test_only_the_ends_of_lines_that_python_knows_end_a_line(before: str) -> None:
    text = f"{before}last = first + 2\n"
    assert SourceText(text).segment(ast.parse(text).body[-1]) == "last = first + 2"


@given(st.text("ax=\x0c\x0b\x1c\x85\u2028\r\n'#ü ", max_size=60))
def test_every_statement_is_found_where_python_puts_it(noise: str) -> None:
    text = f"a = 'x'\n{noise}\nlast = first + 2\n"
    tree = parse_quietly(text)
    if tree is not None:
        found = SourceText(text)
        wanted = [ast.get_source_segment(text, node) for node in tree.body]
        assert [found.segment(node) for node in tree.body] == wanted
