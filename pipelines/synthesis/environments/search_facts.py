"""What a document states, read off it by construction: definitions in code, sentences with a gap in prose.

A fact is plain data. All have `kind`, `subject`, `words` (what to search for) and `at` (characters: where it stands):

    class      bases [names], methods (functions directly in the body), until (where the class ends)
    function   parameters (without self and cls), defaults {name: literal}
    constant   value (a literal, as written)
    gap        sentence with GAP for its answer, number (whether the answer is one)

Which facts can be asked about (a name defined in one document only, a document that a search finds) is decided by
pools/search.py, which sees all documents.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from pipelines.synthesis.environments.search_index import words_of
from pipelines.synthesis.environments.source_text import SourceText, parse_quietly

__all__ = ["GAP", "facts_of", "other_names"]

GAP = "____"
Fact = dict[str, Any]
RARE = 3  # documents that a rare word occurs in, at most
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_NUMBER = re.compile(r"(?<![\w.,-])\d{2,7}(?:\.\d{1,4})?(?![\w.,%-]\w|[\w])")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z'-]+")
_CODE = re.compile(r"[{}\[\]<>|\\=_#*@^~`]|\w\(|::|--|\.\.|https?:")
_LOOKS_LIKE_CODE = re.compile(r"^(?:class|def|import|from) |^[A-Z_0-9]+ = ", re.M)
_DEFINED = re.compile(r"^[ \t]*(?:async )?(def|class) (\w+)", re.M)
LEAST_SENTENCE, LONGEST_SENTENCE = 60, 260
GAPS_OF_A_DOCUMENT = 6


def facts_of(text: str, frequency: Callable[[str], int]) -> Iterator[Fact]:
    """The facts of one document. `frequency` says how many documents of the pool have a word.

    Python that compiles and defines something gives definitions, everything else sentences.
    """
    tree = parse_quietly(text) if _LOOKS_LIKE_CODE.search(text) else None
    if tree is not None:
        yield from _definitions(tree, SourceText(text))
    else:
        yield from _sentences(text, frequency)


def other_names(text: str) -> Iterator[tuple[str, str]]:
    """(kind of fact, name) of what a document defines beside its facts: it makes a question about that name ambiguous.

    In Python: functions and classes inside others (methods, say), names of the file that get a value another way than
    by one plain assignment. In other texts: whatever reads as the first line of a function or class.
    """
    tree = parse_quietly(text) if _LOOKS_LIKE_CODE.search(text) else None
    if tree is None:
        yield from (("class" if match[1] == "class" else "function", match[2]) for match in _DEFINED.finditer(text))
        return
    direct = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and id(node) not in direct:
            yield "class" if isinstance(node, ast.ClassDef) else "function", node.name
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue  # names of their own
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield "constant", node.id
        if isinstance(node, ast.Assign) and id(node) in direct and _constant(node) is not None:
            continue  # a fact: a literal gives no other name a value
        waiting += ast.iter_child_nodes(node)


def _constant(node: ast.Assign) -> str | None:
    """The name that a plain assignment of a literal gives a value."""
    target = node.targets[0]
    single = len(node.targets) == 1 and _literal(node.value) is not None
    return target.id if single and isinstance(target, ast.Name) else None


def _definitions(tree: ast.Module, source: SourceText) -> Iterator[Fact]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [_name(base) for base in node.bases]
            methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
            span = source.span(node)
            yield {
                "kind": "class",
                "subject": node.name,
                "words": ["class", node.name],
                "at": source.offset(node.lineno, 0),
                "until": span.end,
                "bases": [base for base in bases if base],
                "methods": methods,
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _function(node, source)
        elif isinstance(node, ast.Assign) and (name := _constant(node)) is not None:
            value = _written(node.value, source)
            if value is not None and len(name) > 4:
                at = source.offset(node.lineno, 0)
                yield {"kind": "constant", "subject": name, "words": [name], "at": at, "value": value}


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, source: SourceText) -> Fact:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    named = [*positional, *arguments.kwonlyargs]
    given = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    given += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    literals = {argument.arg: _written(default, source) for argument, default in given}
    return {
        "kind": "function",
        "subject": node.name,
        "words": ["def", node.name],
        "at": source.offset(node.lineno, 0),
        "parameters": len([argument for argument in named if argument.arg not in ("self", "cls")]),
        "names": [argument.arg for argument in named],
        "defaults": {name: value for name, value in literals.items() if value is not None},
        "variadic": arguments.vararg is not None or arguments.kwarg is not None,
    }


def _name(node: ast.expr) -> str:
    """The last name of a base class expression, "" for what has none."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _written(node: ast.expr, source: SourceText) -> str | None:
    """A literal as a document states it: numbers as they are written there (0x4000, 1_000), the rest as Python does."""
    value = _literal(node)
    if value is None or value[0] in "'\"" or value in ("True", "False", "None"):
        return value
    text = source.segment(node)
    return text if re.fullmatch(r"-?[\w.+-]{1,20}", text) else value


def _literal(node: ast.expr) -> str | None:
    """A number, short plain string or constant as Python writes it, None for anything else."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int | float):
        return repr(value) if len(repr(value)) <= 12 else None
    plain = isinstance(value, str) and 0 < len(value) <= 30 and value.isprintable() and value.strip() == value
    return repr(value) if plain and not set(value) & set("'\"\\") else None


def _sentences(text: str, frequency: Callable[[str], int]) -> Iterator[Fact]:
    """Sentences with a number or a rare word left out, the rest of whose words are telling enough to search for."""
    found = 0
    for match in re.finditer(r"(?:[^\n]+\n?)+", text):
        start = match.start()
        for sentence in _SENTENCE.split(match[0]):
            at = text.find(sentence, start)
            start = max(start, at)
            plain = " ".join(sentence.split())
            if not LEAST_SENTENCE <= len(plain) <= LONGEST_SENTENCE or _CODE.search(plain) or GAP in plain:
                continue
            fact = _gap(plain, frequency)
            if fact is None or not plain[0].isupper() or plain[-1] not in ".!?":
                continue
            yield {**fact, "at": at + max(0, sentence.find(fact["words"][0]))}
            found += 1
            if found >= GAPS_OF_A_DOCUMENT:
                return


def _gap(sentence: str, frequency: Callable[[str], int]) -> Fact | None:
    """The sentence with a gap, or None when it has nothing to leave out or nothing to find it by."""
    known = {word: frequency(word.lower()) for word in _PLAIN.findall(sentence) if len(words_of(word)) == 1}
    rare = sorted((count, word) for word, count in known.items() if len(word) >= 5 and count)
    numbers = [match[0] for match in _NUMBER.finditer(sentence)]
    numbers = [number for number in numbers if sentence.count(number) == 1]
    if numbers and rare and rare[0][0] <= RARE:
        answer = numbers[0]
    else:
        once = [word for count, word in rare if count <= RARE and sentence.count(word) == 1]
        if len(rare) < 4 or not once:
            return None
        answer = once[0]
    telling = [word for _, word in rare if word != answer][:5]
    if not telling:
        return None
    gapped = sentence.replace(answer, GAP, 1)
    return {
        "kind": "gap",
        "subject": telling[0],
        "words": telling,
        "sentence": gapped,
        "answer": answer,
        "number": answer in numbers,
    }
