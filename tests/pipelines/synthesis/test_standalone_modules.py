"""Cutting modules down to what runs alone, and functions to what they need."""

from __future__ import annotations

from pipelines.synthesis.environments.functions import docstring_calls, is_permissive, module_name
from pipelines.synthesis.environments.modules import (
    candidate_functions,
    cut_slice,
    find_slices,
    make_standalone,
)

MODULE = '''# Copyright notice

"""A module."""
from __future__ import annotations

import re
import numpy as np
from . import sibling

LIMIT = 3

# about numbers
def uses_numpy(x):
    y = np.sum(x)
    y += 1
    return y


def helper(x):
    return x + LIMIT


# doubles
# and shifts
def good(x, n=2):
    """Doubles.

    >>> good(4)
    11
    >>> good(5, n=3)
    18
    """
    value = helper(x)
    value = value + x
    return value


def indirect(x):
    a = uses_numpy(x)
    a = a + 1
    return a


def text(s):
    parts = re.split(" ", s)
    parts.reverse()
    return "-".join(parts)
'''


def test_what_needs_other_packages_goes_with_its_comments() -> None:
    module = make_standalone(MODULE)
    assert module is not None
    assert module.removed == 4  # numpy, sibling, uses_numpy, indirect
    assert "numpy" not in module.source
    assert "# about numbers" not in module.source
    assert "indirect" not in module.source
    assert module.source.startswith("# Copyright notice\n")
    assert "# doubles\n# and shifts\ndef good(x, n=2):" in module.source
    space: dict[str, object] = {"__name__": "m"}
    exec(module.source, space)
    assert space["good"](4) == 11  # type: ignore[operator]


def test_a_module_of_the_standard_library_alone_is_not_changed() -> None:
    source = "import re\n\n\ndef f(s):\n    a = re.sub('a', 'b', s)\n    a += s\n    return a\n"
    module = make_standalone(source)
    assert module is not None
    assert (module.source, module.removed) == (source, 0)


def test_text_that_is_no_module_gives_none() -> None:
    assert make_standalone("def f(:\n") is None
    assert make_standalone("x = 1\n") is None
    assert make_standalone("a = 1; b = 2\n\ndef f(x):\n    x += a\n    x += b\n    return x\n") is None
    assert make_standalone("((((" * 10_000) is None


def test_candidates_are_plain_pure_functions() -> None:
    assert [node.name for node in candidate_functions(MODULE)] == ["uses_numpy", "good", "indirect", "text"]
    impure = "def f(p):\n    with open(p) as h:\n        t = h.read()\n    return t\n"
    assert candidate_functions(impure) == []
    assert candidate_functions("def f(*, a):\n    b = a\n    b += 1\n    return b\n") == []


def test_a_slice_holds_what_the_function_needs_in_order() -> None:
    module = make_standalone(MODULE)
    assert module is not None
    text = cut_slice(module.source, find_slices(module.source, ["good"])["good"])
    assert text.startswith("from __future__ import annotations\nLIMIT = 3\n\n\ndef helper(x):")
    assert "import re" not in text
    space: dict[str, object] = {}
    exec(text, space)
    assert space["good"](1) == 5  # type: ignore[operator]


def test_docstring_examples_with_literal_arguments_become_calls() -> None:
    good = next(node for node in candidate_functions(MODULE) if node.name == "good")
    assert docstring_calls(good) == [["4"]]


def test_licences() -> None:
    assert all(map(is_permissive, ("MIT", "BSD-3-Clause", "Apache-2.0", "PSF-2.0", "Apache Software License", "ISC")))
    assert not any(map(is_permissive, (None, "", "GPL-3.0", "LGPL", "AGPL-3.0-only", "Proprietary", "CC-BY-NC-4.0")))
    assert not is_permissive("MIT AND GPL-2.0")


def test_module_names() -> None:
    assert module_name("python-3.11.7/json/decoder.py#1") == "decoder"
    assert module_name("lib/json/__init__.py#0") == "json"
    assert module_name("data.jsonl.gz#17") == "gz" or module_name("data.jsonl.gz#17").isidentifier()
    assert module_name("") == "module"
