"""The scripted teacher of the family `reasoning`: derives step by step, computes with the tool where there is one."""

from __future__ import annotations

from collections.abc import Generator

from pipelines.synthesis.environments.problems import Problem
from pipelines.synthesis.environments.reasoning import problems_of
from pipelines.synthesis.environments.sheets import LINKED_FROM
from pipelines.synthesis.teachers import phrases
from pipelines.synthesis.teachers.scripted import Plan, ScriptedTeacher
from schemas.trajectory import Message

__all__ = ["ReasoningTeacher"]


_CHECKS = (
    "I check that with the tool.",
    "Before I go on, a check.",
    "A later problem may need this, so I check it.",
    "Let the tool confirm it.",
    "The tool should give the same.",
    "I compute it once more with the tool.",
    "Better checked before it is used.",
)
Checked = Generator[Message, list[Message], list[str]]
_AGREED = (
    "It agrees: {a}.",
    "The check gives {a} as well.",
    "Confirmed, {a}.",
    "Good, {a} it is.",
    "{a}, as I had it.",
    "Also {a}.",
)


class ReasoningTeacher(ScriptedTeacher):
    """Without a tool the derivation is one turn and right; with one, a failing run ends with a wrong answer."""

    def plan(self) -> Plan:
        """See `ScriptedTeacher.plan`."""
        mode, problems = self.task.data["mode"], problems_of(self.task)
        thoughts: list[str] = []
        for place, problem in enumerate(problems, 1):
            heading = f"Problem {place}. " if len(problems) > 1 else ""
            checked = mode != "none" and self.task.difficulty > LINKED_FROM
            if checked or mode == "none":
                thoughts += [heading + self._opening(), *_derivation(problem), problem.conclusion]
            if checked:
                thoughts = yield from self._checked(problem, mode, thoughts)
            elif mode == "none":
                continue
            elif mode == "calculator":
                left = yield from self._with_calculator(problem, heading)
                thoughts += [*left, heading + problem.conclusion]
            else:
                yield from self._with_program(problem, heading)
                thoughts.append(heading + problem.conclusion)
        answers = [problem.answer for problem in problems]
        label = "step"
        if self.fails and mode != "none":
            wrong = self.random.randrange(len(answers))
            answers[wrong], label = _slip(answers[wrong]), "mistake:wrong_answer"
            thoughts[-1] = phrases.pick(self.random, "That should do.", "I do not check it again.")
        many = len(answers) > 1
        lines = [f"Answer {n}: {text}" if many else f"Answer: {text}" for n, text in enumerate(answers, 1)]
        explained = [] if label != "step" or many else [problems[0].conclusion]
        yield from self.answer("\n".join([*explained, *lines]), "\n".join(thoughts), label)

    def _opening(self) -> str:
        return phrases.pick(
            self.random,
            "Step by step.",
            "I work it out.",
            "Let me go through it.",
            "One step after the other.",
            "I take it in order.",
            "First things first.",
        )

    def _checked(self, problem: Problem, mode: str, thoughts: list[str]) -> Checked:
        """On a long sheet a problem is worked out in thought, and the result checked by one call of the tool.

        Gives the thoughts that go with the next turn: those from before where the calculator has nothing to check.
        """
        if mode == "python":
            tool, name, text = "run_code", "code", problem.program
            wrong = [("bad_code", {"code": broken}) for broken in _broken_programs(text)]
        else:
            found = [s.expression for s in problem.steps if s.expression is not None and s.value == problem.answer]
            if not found:
                return thoughts
            tool, name, text = "calculator", "expression", found[-1]
            wrong = [("bad_expression", {"expression": broken}) for broken in _misspelt(text)]
        said = "\n".join([*thoughts, phrases.pick(self.random, *_CHECKS)])
        yield from self.do(tool, {name: text}, said, wrong)
        return [phrases.pick(self.random, *_AGREED, a=problem.answer)]

    def _with_calculator(self, problem: Problem, heading: str) -> Checked:
        """Every step with an expression is a call; the thoughts before it go with it. Gives the thoughts left over.

        What was calculated before in the problem is known: the same call again would be a loop.
        """
        pending = [heading + self._opening()]
        known: set[str] = set()
        for step in problem.steps:
            if step.expression is None:
                pending.append(f"{step.plan}.")
            elif step.expression in known:
                pending.append(f"{step.plan} = {step.value}, as before.")
            else:
                pending.append(f"{step.plan}.")
                known.add(step.expression)
                wrong = [("bad_expression", {"expression": text}) for text in _misspelt(step.expression)]
                yield from self.do("calculator", {"expression": step.expression}, "\n".join(pending), wrong)
                pending = []
        return pending

    def _with_program(self, problem: Problem, heading: str) -> Plan:
        """A short program that finds the answer its own way, after a look at how the problem begins."""
        look = problem.steps[0].plan
        why = phrases.pick(
            self.random,
            "{h}I could go on by hand ({s} …), but a program is safer.",
            "{h}By hand it begins like this: {s}. I let Python do it.",
            "{h}A few lines of Python settle this one.",
            h=heading,
            s=look,
        )
        wrong = [("bad_code", {"code": text}) for text in _broken_programs(problem.program)]
        yield from self.do("run_code", {"code": problem.program}, why, wrong)


def _derivation(problem: Problem) -> list[str]:
    return [f"{step.plan} = {step.value}." if step.value is not None else f"{step.plan}." for step in problem.steps]


def _slip(answer: str) -> str:
    """A wrong answer of the kind that a slip gives."""
    words = {"knight": "knave", "knave": "knight", "Monday": "Tuesday"}
    if answer in words:
        return words[answer]
    head, slash, rest = answer.partition("/")
    if head.lstrip("-").isdigit():
        return f"{int(head) + 1}{slash}{rest}"
    return answer[::-1] if answer[::-1] != answer else answer + "?"


def _misspelt(expression: str) -> list[str]:
    """Expressions that the calculator refuses: an equals sign, a bracket too many, x for times."""
    return [
        f"{expression} =",
        f"({expression}",
        expression.replace(" * ", " x ", 1) if " * " in expression else f"= {expression}",
    ]


def _broken_programs(program: str) -> list[str]:
    """The program with an import forgotten or print misspelt: both end with an error."""
    lines = program.split("\n")
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    broken = [program.replace("print(", "pritn(", 1)]
    if imports:
        broken.append("\n".join(line for line in lines if line not in imports))
    return broken
