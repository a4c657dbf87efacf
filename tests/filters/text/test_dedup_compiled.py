"""Compilation: cached where it can be, working where it cannot."""

from __future__ import annotations

from typing import Any

from filters.text.dedup.compiled import compiled


def test_a_function_that_cannot_be_cached_is_compiled_for_this_process() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def double(value):\n    return value * 2\n", "<nowhere>", "exec"), scope)
    function = compiled("int64(int64)")(scope["double"])
    assert function(21) == 42
    assert len(function.signatures) == 1


def test_kernels_are_compiled_for_one_signature_and_never_again_at_a_call() -> None:
    from filters.text.dedup import kernel

    for function in (kernel.signatures, kernel.shingle_hashes, kernel.trim):
        assert len(function.signatures) == 1
