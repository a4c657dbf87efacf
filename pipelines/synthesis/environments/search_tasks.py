"""Drawing questions from the facts of a search pool: one hop, chains, comparisons, counts, absences."""

from __future__ import annotations

import ast
import math
import random
import re
from collections.abc import Callable
from typing import Any

import xxhash

from pipelines.synthesis.environments.search_index import SearchIndex, pages_of
from pipelines.synthesis.environments.search_questions import ABSENT, Hop, Question, measure_of
from pipelines.synthesis.environments.terminal_jobs.words import NOUNS

__all__ = ["QuestionMaker"]

HELDOUT_PERCENT = 15
MOST_PAGES_READ = 6
SNIPPET = 200  # characters of a line that the tools show
Fact = dict[str, Any]


class QuestionMaker:
    """Draws questions from the facts of one split of a pool. Same pool, split and random numbers: same questions."""

    def __init__(self, index: SearchIndex, split: str) -> None:
        self._index = index
        self._facts = [fact for fact in index.facts() if split in ("all", self._split(fact["document"]))]
        self._of_kind: dict[str, list[Fact]] = {"class": [], "function": [], "constant": [], "gap": []}
        for fact in self._facts:
            self._of_kind[fact["kind"]].append(fact)
        self._classes = {fact["subject"]: fact for fact in self._of_kind["class"]}
        self._derived = [f for f in self._of_kind["class"] if self._base(f) is not None]
        self._defaults = [f for f in self._of_kind["function"] if f["defaults"]]
        self._bridges = [fact for fact in self._of_kind["gap"] if self._other(fact) is not None]
        self._measured = [fact for fact in self._facts if measure_of(fact) is not None]
        self._simple: list[tuple[Callable[[random.Random, float, Fact | None], Question | None], Fact]] | None = None
        self._documents = sorted({fact["document"] for fact in self._facts})

    def __len__(self) -> int:
        return len(self._facts)

    def kinds(self, hard: bool) -> list[str]:
        """The kinds of question that this pool can ask; the easy ones have one hop."""
        easy = {"gap": self._of_kind["gap"], "default": self._defaults, "constant": self._of_kind["constant"]}
        easy |= {"parameters": self._of_kind["function"], "file": self._of_kind["class"], "absent": self._facts}
        more = {"chain": self._derived, "compare": self._measured[1:], "methods": self._of_kind["class"]}
        more |= {"bridge": self._bridges, "count": self._documents[8:], "absent_parameter": self._of_kind["function"]}
        return [kind for kind, found in {**easy, **(more if hard else {})}.items() if found]

    def simple(self, number: int, generator: random.Random) -> Question | None:
        """Question `number` of one hop about a fact: as many numbers in a row as there are facts, as many questions."""
        if self._simple is None:
            kinds: dict[str, Callable[[random.Random, float, Fact | None], Question | None]] = {
                "gap": self._gap,
                "constant": self._constant,
                "class": self._file,
            }
            found = [(kinds[fact["kind"]], fact) for fact in self._facts if fact["kind"] in kinds]
            found += [(self._default, fact) for fact in self._defaults]
            found += [(self._parameters, fact) for fact in self._of_kind["function"] if measure_of(fact) is not None]
            self._simple = found
        size = len(self._simple)
        if not size:
            return None
        step = next(n for n in range(max(1, int(size * 0.618)), 2 * size + 2) if math.gcd(n, size) == 1)
        make, fact = self._simple[number * step % size]
        return make(generator, 0.0, fact)

    def question(self, kind: str, generator: random.Random, reads: float) -> Question | None:
        """A question of a kind, None when the draw did not give one. `reads` is the chance that pages are read."""
        makers: dict[str, Callable[[random.Random, float], Question | None]] = {
            "gap": self._gap,
            "default": self._default,
            "constant": self._constant,
            "parameters": self._parameters,
            "file": self._file,
            "absent": self._absent,
            "chain": self._chain,
            "compare": self._compare,
            "methods": self._methods,
            "bridge": self._bridge,
            "count": self._count,
            "absent_parameter": self._absent_parameter,
        }
        return makers[kind](generator, reads)

    def _split(self, document: int) -> str:
        key = xxhash.xxh3_64_intdigest(f"split:{self._index.documents[document].id}".encode())
        return "heldout" if key % 100 < HELDOUT_PERCENT else "train"

    def _name(self, fact: Fact) -> str:
        return self._index.documents[fact["document"]].name

    def _title(self, fact: Fact) -> str:
        return self._index.documents[fact["document"]].title

    def _base(self, fact: Fact) -> Fact | None:
        """The definition of a class's first base, in another document."""
        base = self._classes.get(fact["bases"][0]) if fact["bases"] else None
        return base if base is not None and base["document"] != fact["document"] else None

    def _other(self, fact: Fact) -> int | None:
        """The one other document that has the word missing from a sentence, if there is exactly one."""
        found = [] if fact["number"] else self._index.with_word(fact["answer"].lower())
        others = [number for number in found if number != fact["document"]]
        return others[0] if len(found) == 2 and len(others) == 1 else None

    def _pages(self, fact: Fact, generator: random.Random, reads: float, whole: bool = False) -> list[int]:
        """Pages to read: those of the fact, sometimes all before it too; none when the chance says so."""
        pages = pages_of(self._index.text(fact["document"]))
        first = next((n for n, (_, end) in enumerate(pages, 1) if fact["at"] < end), len(pages))
        until = fact["until"] if "until" in fact else fact["at"]
        last = next((n for n, (_, end) in enumerate(pages, 1) if until <= end), len(pages))
        if whole:
            return list(range(first, min(last, first + MOST_PAGES_READ - 1) + 1))
        if generator.random() >= reads:
            return []
        start = max(1, first - MOST_PAGES_READ + 1) if generator.random() < reads / 2 else first
        return list(range(start, first + 1))

    def _hop(self, fact: Fact, generator: random.Random, reads: float, says: str = "", whole: bool = False) -> Hop:
        """The way to one fact."""
        forms = {"class": r"^\s*class {}\b", "function": r"def {}\(", "constant": r"^{} = ", "gap": r"\b{}\b"}
        subject = fact["words"][0] if fact["kind"] == "gap" else fact["subject"]
        pattern = forms[fact["kind"]].format(re.escape(subject))
        line = self._index.text(fact["document"])[fact["at"] :].split("\n", 1)[0][:SNIPPET]
        told = says.strip("'\"") in line or says.isdigit() or says.startswith("no ")
        if (fact["kind"] == "function" and ")" not in line) or (fact["kind"] in ("function", "constant") and not told):
            reads = 1.0  # what is shown of the line does not hold all parameters, or not the value
        pages = self._pages(fact, generator, reads, whole)
        return Hop(" ".join(fact["words"]), self._name(fact), pattern, pages, says)

    def _gap(self, generator: random.Random, reads: float, fact: Fact | None = None) -> Question:
        fact = fact or generator.choice(self._of_kind["gap"])
        what = "number" if fact["number"] else "word"
        text = generator.choice(
            (
                "Which {w} is missing in this sentence of the corpus: “{s}”",
                "One document says: “{s}” Which {w} belongs in the gap?",
                "Fill the gap ({w}) as the corpus has it: “{s}”",
            )
        ).format(w=what, s=fact["sentence"])
        hop = self._hop(fact, generator, max(reads, 0.5), fact["answer"])
        return Question("gap", text, fact["answer"], [], [self._name(fact)], [hop])

    def _default(self, generator: random.Random, reads: float, fact: Fact | None = None) -> Question:
        fact = fact or generator.choice(self._defaults)
        parameter = generator.choice(sorted(fact["defaults"]))
        value = fact["defaults"][parameter]
        text = f"What is the default value of the parameter `{parameter}` of the function `{fact['subject']}`?"
        hop = self._hop(fact, generator, reads, value)
        return Question("default", text, value, _other_forms(value), [self._name(fact)], [hop])

    def _constant(self, generator: random.Random, reads: float, fact: Fact | None = None) -> Question:
        fact = fact or generator.choice(self._of_kind["constant"])
        text = f"Which value is assigned to `{fact['subject']}` at the top level of the file that defines it?"
        hop = self._hop(fact, generator, reads, fact["value"])
        return Question("constant", text, fact["value"], _other_forms(fact["value"]), [self._name(fact)], [hop])

    def _parameters(self, generator: random.Random, reads: float, fact: Fact | None = None) -> Question | None:
        fact = fact or generator.choice(self._of_kind["function"])
        if measure_of(fact) is None:
            return None
        text = f"How many parameters does the function `{fact['subject']}` have?"
        answer = str(fact["parameters"])
        return Question("parameters", text, answer, [], [self._name(fact)], [self._hop(fact, generator, reads, answer)])

    def _file(self, generator: random.Random, reads: float, fact: Fact | None = None) -> Question:
        fact = fact or generator.choice(self._of_kind["class"])
        text = f"Which document defines the class `{fact['subject']}`? Give its id."
        hop = self._hop(fact, generator, reads, self._name(fact))
        return Question("file", text, self._name(fact), [self._title(fact)], [self._name(fact)], [hop])

    def _methods(self, generator: random.Random, reads: float) -> Question | None:
        fact = generator.choice(self._of_kind["class"])
        if len(self._pages(fact, generator, 1.0, whole=True)) >= MOST_PAGES_READ:
            return None
        text = f"How many functions (methods, with `def`) stand directly in the body of the class `{fact['subject']}`?"
        answer = str(fact["methods"])
        hop = self._hop(fact, generator, reads, answer, whole=True)
        return Question("methods", text, answer, [], [self._name(fact)], [hop])

    def _chain(self, generator: random.Random, reads: float) -> Question | None:
        fact = generator.choice(self._derived)
        facts = [fact]
        while (base := self._base(facts[-1])) is not None and len(facts) < 3 and generator.random() < 0.8:
            facts.append(base)
        if len(facts) < 2 or len({f["document"] for f in facts}) < len(facts):
            return None
        last = facts[-1]
        which = "the first base class of " * (len(facts) - 1) + f"`{fact['subject']}`"
        kind = generator.choice(("file", "methods", "base"))
        if kind == "base" and last["bases"]:
            text, answer = f"What is the name of the first base class of {which}?", last["bases"][0]
        elif kind == "methods" and len(self._pages(last, generator, 1.0, whole=True)) < MOST_PAGES_READ:
            text, answer = f"How many functions stand directly in the body of {which}?", str(last["methods"])
        else:
            kind, text, answer = "file", f"Which document defines {which}? Give its id.", self._name(last)
        hops = [self._hop(f, generator, reads, f["bases"][0]) for f in facts[:-1]]
        hops.append(self._hop(last, generator, reads, answer, whole=kind == "methods"))
        accept = [self._title(last)] if kind == "file" else []
        return Question("chain", text, answer, accept, [self._name(f) for f in facts], hops)

    def _compare(self, generator: random.Random, reads: float) -> Question | None:
        first = generator.choice(self._measured)
        others = [fact for fact in self._measured if fact["kind"] == first["kind"] and fact is not first]
        second = generator.choice(others) if others else first
        one, two = measure_of(first), measure_of(second)
        if one is None or two is None or one[0] == two[0]:
            return None
        more = generator.random() < 0.5
        winner = first if (one[0] > two[0]) == more else second
        text = f"Which of the two is {'larger' if more else 'smaller'}: (A) {one[1]} or (B) {two[1]}? Answer A or B."
        whole = first["kind"] == "class"
        if whole and any(len(self._pages(f, generator, 1.0, True)) >= MOST_PAGES_READ for f in (first, second)):
            return None
        hops = [self._hop(f, generator, reads, f"{value[0]:g}", whole) for f, value in ((first, one), (second, two))]
        answer = "A" if winner is first else "B"
        accept = [winner["subject"]] if first["kind"] != "gap" else []
        return Question("compare", text, answer, accept, sorted({self._name(first), self._name(second)}), hops)

    def _bridge(self, generator: random.Random, reads: float) -> Question:
        fact = generator.choice(self._bridges)
        other = self._other(fact)
        name = self._index.documents[other or 0].name
        text = (
            f"A word is missing in the sentence “{fact['sentence']}” Exactly one other document has that word too. "
            "Give the id of that other document."
        )
        first = self._hop(fact, generator, max(reads, 0.5), fact["answer"])
        word = fact["answer"]
        second = Hop(word, name, rf"\b{re.escape(word)}\b", [], name)
        support = [self._name(fact), name]
        return Question("bridge", text, name, [self._index.documents[other or 0].title], support, [first, second])

    def _count(self, generator: random.Random, reads: float) -> Question | None:
        base = generator.choice(self._facts)
        words = re.findall(r"[A-Za-z]{6,}", self._index.text(base["document"])[:4_000])
        if not words:
            return None
        word = generator.choice(words).lower()
        everywhere = set(self._index.with_word(word))
        having = [number for number in self._documents if number in everywhere]
        if not 2 <= len(having) <= 400:
            return None
        total = generator.randint(3, 7)
        chosen = generator.sample(having, min(len(having), generator.randint(1, total - 1)))
        lacking = generator.sample(self._documents, min(24, len(self._documents)))
        chosen += [n for n in lacking if n not in everywhere][: total - len(chosen)]
        pattern = rf"\b{word}\b"
        search = re.compile(pattern, re.I)
        answer = sum(any(search.search(line) for line in self._index.text(n).split("\n")) for n in chosen)
        generator.shuffle(chosen)
        names = [self._index.documents[number].name for number in chosen]
        text = f"How many of the documents {', '.join(names)} have the word “{word}” (as a whole word, any case)?"
        return Question("count", text, str(answer), [], names, [Hop("", name, pattern) for name in names])

    def _absent(self, generator: random.Random, reads: float) -> Question | None:
        first, second = generator.sample(NOUNS, 2)
        tail = generator.choice(("Resolver", "Adapter", "Index", "Policy", "Broker", "Codec"))
        name = f"{first.title()}{second.title()}{tail}"
        if name.lower() in self._index.vocabulary:
            return None
        kinds = [f"Which document defines the class `{name}`?", f"Which value is assigned to `{name.upper()}`?"]
        kinds += [f"Which year does the corpus give for the {first.title()}{second.title()}{tail}?"]
        return Question("absent", generator.choice(kinds), ABSENT, [], [], [Hop(name, "", "")])

    def _absent_parameter(self, generator: random.Random, reads: float) -> Question | None:
        fact = generator.choice(self._of_kind["function"])
        parameter = f"{generator.choice(('max', 'use', 'keep'))}_{generator.choice(NOUNS)}"
        if fact["variadic"] or parameter in fact["names"]:
            return None
        text = f"What is the default value of the parameter `{parameter}` of the function `{fact['subject']}`?"
        hop = self._hop(fact, generator, reads, f"no {parameter}")
        return Question("absent_parameter", text, ABSENT, [], [self._name(fact)], [hop])


def _other_forms(value: str) -> list[str]:
    """How else a value may be given: a number without hexadecimal digits, underscores or exponent."""
    try:
        plain = repr(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return []
    return [plain] if plain != value else []
