"""A chat template of somebody else, run in Jinja's immutable sandbox.

The environment is the one of Hugging Face `apply_chat_template` (trimmed blocks, loop controls, `tojson` that does not
escape HTML, `raise_exception`, the `generation` block) without `strftime_now`: a date would change the bytes of a
shard from day to day. Templates that test whether it is defined fall back to their own fixed date.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes
from jinja2.parser import Parser

from schemas.errors import InputError

__all__ = ["ChatTemplate"]


class _Generation(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` renders its body: marks are not needed here."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Replace the block by its body."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class ChatTemplate:
    """A compiled chat template. `variables` are what it may read besides messages and tools (bos_token, …)."""

    def __init__(self, source: str, variables: dict[str, Any], place: str) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        self._place = place
        self._variables = variables
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InputError(f"not a Jinja template ({error})", path=place, line=error.lineno) from None

    def render(self, messages: Sequence[dict[str, Any]], tools: list[Any] | None, *, prompt: bool = False) -> str:
        """The text of messages; with `prompt` the opening of an assistant turn follows.

        Raises InputError with the template's own words when it raises.
        """
        values = {**self._variables, "messages": list(messages), "tools": tools, "add_generation_prompt": prompt}
        try:
            return self._template.render(values)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise InputError(
                f"the chat template fails: {error}",
                path=self._place,
                todo="Use a template that takes these messages, or the tokenizer's without one",
            ) from None


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
