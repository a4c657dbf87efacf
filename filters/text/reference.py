"""Does a text read as code: a program, or the reference page of a programming interface?

Sources give one domain for all of their documents, and that is wrong in one way above all: the documentation of a
scientific or mathematical package is mostly signatures, parameters and sessions, which is code whatever the package
is about. A classifier trained on such labels learns the package. So training labels are corrected by these signs:

    headings     lines that are only "Parameters", "Returns", "Raises", "Syntax", … as every reference generator writes
    signatures   lines that are only a call: `name.of.function(first, second=2) -> kind`, or end in Sphinx's [source]
    directives   `.. autoclass::`, `:param x:`, `@return`, and interpreter prompts
    statements   lines of Python, C-like languages, BASIC and SQL, by their keywords and line ends
    functional   lines of ML languages, as long as hardly a line states or proves something

Texts in proof languages (Agda, HOL Light, Metamath) stay what their source says: their statements are mathematics.
Precision is what counts here, for the classifier learns the rest from words.
"""

from __future__ import annotations

import re

__all__ = ["EXCERPT", "reads_as_code"]

EXCERPT = 4000  # characters looked at: three quarters from the start, one quarter from the middle
LONGEST_LINE = 300  # longer lines are prose or data; patterns are not tried on them

_HEADINGS = re.compile(
    r"\W{0,3}(parameters?|params|arguments?|args|returns?|return value|return type|yields?|raises|throws|exceptions?"
    r"|errors|error codes|attributes|methods|properties|syntax|synopsis|signature|usage|see also|constructor"
    r"|other parameters|class methods|functions|options)\s*[:¶#]?\W*",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"\W{0,3}(?:(?:class|def|function|method|property|classmethod|staticmethod|abstract|async|fn|void|int|sub)\s+)?"
    r"[A-Za-z_][\w.:]*\s?\((?:[^()]|\([^()]*\))*\)\s*(?:(?:->|→).*|as \w+)?(?:\[source\])?[#¶:]?",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(
    r"\.\. (?:auto\w+|currentmodule|module|py:|code-block|sourcecode|function|class|method|ipython)\b"
    r"|:(?:param|type|returns?|rtype|members|undoc)\b|@(?:param|return)\b|>>> ?|In \[\d+\]:|\$ \w"
)
_STATEMENT = re.compile(
    r"from\s+[\w.]+\s+import\b|import\s+[\w.{*]|def\s+\w+\s*\(|class\s+\w+.*:\s*$|@\w[\w.]*(?:\(.*\))?$"
    r"|return\b.*[\w)\]]$|(?:if|for|while|elif|with|try|except|else|finally)\b.*:$|#include\b|#define\b"
    r"|(?:public|private|protected|static|const|fn|pub|use|impl|struct|enum|func|package|void|int|char|var|mod)\s.*[;{(]$"
    r"|\w[\w.\[\]]*(?:,\s*\w+)*\s*[-+*/|]?=\s*[^=\s].*|[\w.]+\(.*\)\s*;?$|print\b"
    r"|(?:dim|sub|end sub|end function|function)\b|(?:select|create|insert|alter|drop|update|delete)\b.*;$"
    r"|.*(?:[^;];|\{)$|[})\]]+[;,]?$",
    re.IGNORECASE,
)
_SOURCE_LINK = re.compile(r"[A-Za-z_][\w. ]*(?:\(.*\))?(?: ?(?:->|→).*)?\[source\][#¶]?$")
_FUNCTIONAL = re.compile(
    r"let\s+rec\b|let\s.*(?:=|\bin)$|and\s+\w+.*=$|(?:module|functor)\s.*(?:=|:|struct|sig)|val\s+\w+\s*:|open\s+[\w.]+;*$"
    r"|match\b.*|try\b.*|with\b.*|\|.*->|fun\s.*->|type\s.*=|exception\s+\w+|end\b|.*\bin$|if\b.*\bthen\b|else\b"
    r"|(?:raise|failwith)\b|begin$|function$"
)
_PROOF = re.compile(r"\b(?:prove|THENL?|[A-Z]+_TAC|Lemma|Theorem|Proof|Qed|proof|qed)\b|\|-|⊢|≡|∀|`")


def reads_as_code(text: str) -> bool:
    """Whether the text is mostly program text or reference documentation of an interface.

    Yes when a heading stands with a signature, with three different headings, with two directives or prompts, or when
    statements make up more than half of it (three tenths beside a signature). Cost: about 0.2 ms a document.
    A link to the source settles it, as does ML text of which less than a twentieth are lines of proofs.
    """
    if len(text) > EXCERPT:
        middle = len(text) // 2
        text = text[: EXCERPT * 3 // 4] + "\n" + text[middle : middle + EXCERPT // 4]
    headings: set[str] = set()
    signatures = directives = statements = total = functional = proof = 0
    for raw in text.split("\n"):
        line = raw.strip()
        if not line:
            continue
        total += len(line)
        if len(line) > LONGEST_LINE:
            continue
        if heading := _HEADINGS.fullmatch(line):
            headings.add(heading[1].lower())
            continue
        if _SOURCE_LINK.match(line):
            return True
        signatures += _SIGNATURE.fullmatch(line) is not None
        functional += len(line) if _FUNCTIONAL.match(line) else 0
        proof += len(line) if _PROOF.search(line) else 0
        directive = _DIRECTIVE.match(line) is not None
        directives += directive
        if directive or _STATEMENT.match(line):
            statements += len(line)
    if not total:
        return False
    share = statements / total
    documented = (signatures > 0 and len(headings) > 0) or len(headings) >= 3
    if functional / total > 0.4 and proof / total < 0.05:
        return True
    return documented or directives >= 2 or share > 0.5 or (share > 0.3 and signatures > 0)
