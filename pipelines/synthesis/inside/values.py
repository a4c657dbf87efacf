"""Seeded inputs for functions of unknown types, and the literal form of values. Standard library only (sandbox plugin).

A plan is one kind a parameter. Kinds are guessed from annotations, defaults and parameter names, then varied.
"""

from __future__ import annotations

import random
from typing import Any

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "river",
    "stone",
    "cloud",
    "north",
    "south",
    "amber",
    "copper",
    "silver",
    "maple",
    "cedar",
    "violin",
    "harbor",
    "lantern",
    "meadow",
    "Monday",
    "apple",
    "orange",
    "seven",
    "twelve",
    "hello",
    "world",
    "data",
    "point",
    "line",
    "queue",
    "stack",
    "graph",
    "node",
    "edge",
    "token",
    "parse",
    "value",
]
NAME_KINDS = {
    "int": "n i j k m count width size length num number year month day limit index pos start stop end depth base "
    "order indent level offset maxlen port bits lo hi",
    "float": "x y z alpha beta mu sigma ratio rate eps tol weight",
    "str": "s text string str name line word path url key prefix suffix sep delim title label pattern char c ch msg "
    "message value doc filename query fragment string1 string2 head tail code",
    "list_int": "data seq values nums numbers items iterable lst a arr array heap xs ys points sizes",
    "list_str": "words lines names keys parts strings tokens args fields",
    "dict": "d mapping table env options kwds dic namespace",
    "bytes": "b buf buffer bytes payload raw chunk",
    "bool": "flag strict verbose reverse quiet",
}
BY_NAME = {name: kind for kind, names in NAME_KINDS.items() for name in names.split()}
KINDS = (
    "int", "str", "list_int", "float", "list_str", "dict", "pairs", "nested", "bytes", "bool", "tuple_int", "none",
    "digits", "path", "url", "sorted_int", "set_int",
)  # fmt: skip
ANNOTATED = {
    "int": "int", "float": "float", "str": "str", "bytes": "bytes", "bool": "bool", "list": "list_int",
    "dict": "dict", "tuple": "tuple_int", "Sequence": "list_int", "Iterable": "list_int", "Mapping": "dict",
}  # fmt: skip


def plans(hints: list[list[str]], generator: random.Random, wanted: int = 12) -> list[list[str]]:
    """Kinds to try: the guess first, then the guess with parameters changed at random. hints: [parameter, hint]."""
    guess = [kind_of(name, hint) for name, hint in hints]
    found = [guess]
    for kind in KINDS:  # the whole row of one kind: functions over two numbers, two strings, …
        found.append([kind] * len(hints))
    for _ in range(wanted):
        found.append([g if generator.random() < 0.4 else generator.choice(KINDS) for g in guess])
    unique: list[list[str]] = []
    for plan in found:
        if plan not in unique:
            unique.append(plan)
    return unique


def kind_of(name: str, hint: str) -> str:
    """The likeliest kind of a parameter; `hint` is its annotation or the type name of its default."""
    for word, kind in ANNOTATED.items():
        if hint.startswith(word) or f"[{word}" in hint:
            return "list_str" if kind == "list_int" and "str" in hint else kind
    return BY_NAME.get(name, BY_NAME.get(name.rstrip("0123456789s"), "str"))


def make(kind: str, generator: random.Random) -> str:
    """An input of a kind, as a literal."""
    return literal(_value(kind, generator))


def _value(kind: str, g: random.Random) -> Any:
    if kind == "int":
        return g.choice([0, 1, 2, 3, g.randint(4, 12), g.randint(4, 40), g.randint(10, 400), -g.randint(1, 9)])
    if kind == "float":
        return g.choice([0.5, 1.5, -2.25, g.randint(-50, 50) / 4, g.randint(1, 999) / 8])
    if kind == "bool":
        return g.random() < 0.5
    if kind == "none":
        return None
    if kind in ("str", "digits", "path", "url", "bytes"):
        return _text(kind, g)
    if kind == "dict":
        return {g.choice(WORDS): g.choice([g.randint(0, 20), g.choice(WORDS)]) for _ in range(g.randint(1, 4))}
    if kind == "pairs":
        return [(g.choice(WORDS), g.randint(0, 20)) for _ in range(g.randint(1, 4))]
    if kind == "nested":
        return [[g.randint(0, 9) for _ in range(g.randint(0, 3))] for _ in range(g.randint(1, 4))]
    if kind == "list_str":
        return [g.choice(WORDS) for _ in range(g.randint(0, 5))]
    numbers = [g.randint(-5, 30) for _ in range(g.randint(0, 7))]
    if kind == "sorted_int":
        return sorted(numbers)
    if kind == "set_int":
        return set(numbers) or {1}
    return tuple(numbers) if kind == "tuple_int" else numbers


def _text(kind: str, g: random.Random) -> Any:
    if kind == "digits":
        return str(g.randint(0, 9999)) + g.choice(["", "", ".5", "e3"])
    if kind == "path":
        return g.choice(["", "/"]) + "/".join(g.choice(WORDS) for _ in range(g.randint(1, 3))) + g.choice(["", ".txt"])
    if kind == "url":
        query = g.choice(["", f"?{g.choice(WORDS)}={g.randint(1, 9)}", "#top"])
        return f"http://{g.choice(WORDS)}.org/{g.choice(WORDS)}{query}"
    words = [g.choice(WORDS) for _ in range(g.randint(0, 4))]
    text = g.choice([" ", " ", ", ", "\n", "  ", "-", "_", "\t", ": "]).join(words)
    text = g.choice([text, text, text.title(), text.upper(), f" {text} ", f"({text})", f'"{text}"', f"<b>{text}</b>"])
    return text.encode() if kind == "bytes" else text


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value is built of literals only (exact types, finite floats, no deep nesting)."""
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        return kind is not str or value.isprintable() or value.isascii()
    if kind is float:
        return bool(value == value and value not in (float("inf"), float("-inf")))
    if depth > 6:
        return False
    if kind in (list, tuple):
        return all(is_plain(item, depth + 1) for item in value)
    if kind in (set, frozenset):
        return len(value) > 0 and kind is set and all(is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return all(is_plain(k, depth + 1) and is_plain(v, depth + 1) for k, v in value.items())
    return False


def literal(value: Any) -> str:
    """The expression of a plain value; sets are written in sorted order."""
    if type(value) is set:
        return "{" + ", ".join(sorted(map(literal, value))) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(literal, value)) + "]"
    if type(value) is tuple:
        return "(" + ", ".join(map(literal, value)) + ("," if len(value) == 1 else "") + ")"
    if type(value) is dict:
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)
