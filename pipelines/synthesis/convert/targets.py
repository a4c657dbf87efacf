"""The targets by name. A new one is one line in `open_writer`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.synthesis.convert.chat import ChatWriter
from pipelines.synthesis.convert.writer import Writer, trained
from schemas.errors import UsageError
from schemas.trajectory import Message

__all__ = ["TARGETS", "open_writer"]

_TOKEN_TARGETS = ("trl", "megatron")


def _weight(message: Message) -> dict[str, Any]:
    return {"weight": int(trained(message))}


def _train(message: Message) -> dict[str, Any]:
    return {"train": trained(message)}


def _step_loss_mask(message: Message) -> dict[str, Any]:
    return {"step_loss_mask": int(trained(message))}


def _trainable(message: Message) -> dict[str, Any]:
    return {"trainable": trained(message)}


def _loss_mask(message: Message) -> dict[str, Any]:
    return {"loss_mask": int(trained(message))}


def _verl_schema() -> Any:
    import pyarrow as pa

    function = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    message = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("reasoning_content", pa.string()),
            ("tool_calls", pa.list_(call)),
            ("tool_call_id", pa.string()),
            ("name", pa.string()),
            ("loss_mask", pa.int8()),
        ]
    )
    return pa.schema([("id", pa.string()), ("messages", pa.list_(message)), ("tools", pa.string())])


def _chat_writers() -> dict[str, Callable[[], Writer]]:
    return {
        "openai": lambda: ChatWriter("openai", _weight, reasoning="think", arguments="text", names=False),
        "axolotl": lambda: ChatWriter(
            "axolotl", _train, reasoning="field", arguments="json_text", tools="list_with_text_parameters"
        ),
        "slime": lambda: ChatWriter("slime", _step_loss_mask, reasoning="field", arguments="object"),
        "tinker": lambda: ChatWriter("tinker", _trainable, reasoning="parts", arguments="unparsed", flag_all=True),
        "verl": lambda: ChatWriter(
            "verl",
            _loss_mask,
            reasoning="field",
            arguments="text",
            tools="text",
            kind="parquet",
            schema_of=_verl_schema,
            note="rows whose loss_mask is read by verl only from its pull request 5472 on (before it, all turns train)",
        ),
    }


def _sharegpt() -> Writer:
    from pipelines.synthesis.convert.sharegpt import ShareGPTWriter

    return ShareGPTWriter()


def _swift() -> Writer:
    from pipelines.synthesis.convert.swift import SwiftWriter

    return SwiftWriter()


def _llamafactory() -> Writer:
    from pipelines.synthesis.convert.llamafactory import LlamaFactoryWriter

    return LlamaFactoryWriter()


def _atif() -> Writer:
    from pipelines.synthesis.convert.atif import AtifWriter

    return AtifWriter()


_WRITERS: dict[str, Callable[[], Writer]] = {
    **_chat_writers(),
    "sharegpt": _sharegpt,
    "swift": _swift,
    "llamafactory": _llamafactory,
    "atif": _atif,
}
TARGETS = (*sorted(_WRITERS), *_TOKEN_TARGETS)


def open_writer(target: str, tokenizer: str | Path | None = None, history: str = "refuse") -> Writer:
    """The writer of a target; `history` as in `pipelines.curriculum.renderers.open_renderer`.

    Raises UsageError for an unknown target, or a token target without a tokenizer.
    """
    if target in _TOKEN_TARGETS:
        if tokenizer is None:
            raise UsageError(f"target {target!r} is made of tokens: give --tokenizer FOLDER (with a tokenizer.json)")
        from pipelines.synthesis.convert.tokens import TokenWriter

        return TokenWriter(target, tokenizer, history)
    if target not in _WRITERS:
        raise UsageError(f"target {target!r} is unknown. Use one of: {', '.join(TARGETS)}")
    if tokenizer is not None:
        raise UsageError(f"target {target!r} holds messages: --tokenizer has no meaning for it")
    return _WRITERS[target]()
