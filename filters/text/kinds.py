"""What a text is made of: prose, code, formulas, or a mixture. Prose rules must not judge the others.

Decided by what the text looks like, never by a label. Code is told by the shape of its lines and the scarcity of the
words that hold English sentences together; formulas by LaTeX, mathematical symbols and equations. The weights were
fitted (logistic regression) on 3,651 Python and OCaml files against 18,691 books, manuals, dictionary entries and
worked problems, then rounded. Of 4,209 Python files and prompts, Agda and HOL sources the Gopher rules then drop none,
of 1,010 Metamath proofs two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.lines import Lines, count_pattern
from filters.text.words import Floats, Words

__all__ = ["CODE", "FORMULA", "MIXED", "PROSE", "Kinds", "kinds_of"]

PROSE, CODE, FORMULA, MIXED = range(4)

FUNCTION_WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "with", "be", "by", "on", "are", "this", "from"),
    *("at", "or", "an", "which", "was", "not", "have", "has", "can", "we", "you", "he", "his", "they", "will", "if"),
    *("their", "but"),
)

_MODIFIERS = r"(?:(?:pub|private|public|static|const|export|async) )*"
_DECLARATIONS = (
    r"(?:fn|func|function|struct|enum|impl|trait|interface|namespace|package|module|open|data|record|let|var|val"
    r"|const|type|using|use)"
)
_TARGET = r"[\w.\[\]'\"]+(?:, ?[\w.]+)*(?:: ?[\w\[\], .|]+)?"
CODE_LINE = (
    "^(?:"
    + "|".join(
        (
            r"#(?:\s.*|!.*|-.*|=.*)?|--.*|\(\*.*|;;.*|//.*|/\*.*|\*/",  # comments
            r"(?:async )?(?:def|class) \w+.*:|@\w[\w.]*(?:\(.*\))?",
            r"import [\w.]+(?: as \w+)?(?:, [\w. ]+)*;?|from [\w.]+ import .*|#include.*|#define.*",
            r"(?:el)?if .*[:{]|else\s*[:{]|try\s*[:{]|except.*:|for .* in .*:|for ?\(.*|while .*[:{]|with .*:",
            r"return\b.{0,100}|raise \w.*|>>> .*",
            _MODIFIERS + _DECLARATIONS + r" .*[;{=(:]?",
            _TARGET
            + r"(?: ?(?:[-+*/|&%]|//|\*\*|:)?= [^= ].*|=[^= \"'].*|=[\"'].*[,;)\]])",  # assignments, not x="y" of HTML
            r"[\w.]+\(.*\)?[;:,]?",  # calls
            r"[)\]}>]+[,;:.]?|.*[;{]|.*\\",  # ends of blocks, statements and continued lines
        )
    )
    + ")$"
)
DEFINITION = (
    r"(?:^|\n)(?:(?:async )?def \w+\(|class \w+[(:]|from [\w.]+ import |#include [<\"]|module [\w.]+ where"
    r"|\w+ ?= ?[\[({]|\"\"\")|\s\$p \|-"
)
"""What stands at the start of a line in source code or formal mathematics and nowhere else: one is enough to doubt."""
INDENTED = r"\n(?:  |\t)[ \t]*\S"
_SYMBOLS = (
    r"[\x{2190}-\x{22FF}\x{2A00}-\x{2AFF}\x{27C0}-\x{27FF}\x{2070}-\x{209F}\x{2100}-\x{214F}\x{25A0}-\x{25FF}"
    r"\x{0370}-\x{03FF}\x{B2}\x{B3}\x{B9}\x{AC}\x{B1}\x{D7}\x{F7}\x{2032}\x{2033}]"
)
FORMULA_PIECE = "|".join(
    (
        r"\\[a-zA-Z]+|\$[^$\n]{1,80}\$",  # LaTeX
        _SYMBOLS,
        r"\|-|==>|<=>|\$[a-z=.()]\s",  # HOL and Metamath
        r"[0-9] ?[+*/^] ?[$(]?[0-9]|[0-9A-Za-z)\]}'] ?= ?[-$(\[{]?[0-9A-Za-z(]",  # arithmetic and equations
    )
)


@dataclass(frozen=True, slots=True)
class KindWeights:
    """The decision: code when code*c + indent*min(i, 3c) - function*f > bias, with c, i, f the shares of code-shaped
    lines, indented lines and function words. Fitted and rounded by datamix, see the module."""

    code: float = 9.0
    indent: float = 5.0
    function: float = 11.0
    bias: float = 3.3
    doubt: float = 1.0  # so near below the bias a text is called mixed
    formula: float = 0.04  # formula pieces a word
    some_formula: float = 0.02


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kind (PROSE, CODE, FORMULA or MIXED) and share of function words of each text, shape (documents,)."""

    kind: npt.NDArray[np.int8]
    function_words: Floats


def kinds_of(texts: pa.Array, words: Words, lines: Lines, weights: KindWeights | None = None) -> Kinds:
    """The kind of each text of a batch; a text without words is PROSE. `words` and `lines` are those of `texts`."""
    w = weights or KindWeights()
    lowered = pc.utf8_lower(words.vocabulary)
    known = pa.array(FUNCTION_WORDS, lowered.type)
    function = words.share(pc.is_in(lowered, known).to_numpy(zero_copy_only=False))
    code = lines.share(CODE_LINE)
    indent = count_pattern(texts, INDENTED) / np.maximum(lines.count, 1)
    formula = count_pattern(texts, FORMULA_PIECE) / np.maximum(words.count, 1)
    score = w.code * code + w.indent * np.minimum(indent, 3 * code) - w.function * function - w.bias
    defines = count_pattern(texts, DEFINITION) > 0
    kind = np.full(len(texts), PROSE, np.int8)
    kind[(score > -w.doubt) | (formula >= w.some_formula) | defines] = MIXED
    kind[formula >= w.formula] = FORMULA
    kind[score > 0] = CODE
    kind[words.count == 0] = PROSE
    return Kinds(kind, function)
