"""The scripted teacher of the family `terminal`: job by job, look, read, change, check; then one report."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.environments.terminal import jobs_of
from pipelines.synthesis.environments.terminal_jobs import Job
from pipelines.synthesis.teachers import phrases
from pipelines.synthesis.teachers.scripted import Plan, ScriptedTeacher

__all__ = ["TerminalTeacher", "that_matters"]


FIRST = ("Job {n}. {w}", "I begin with job {n}. {w}", "Number {n} first. {w}")
ON = ("Job {n}. {w}", "Now number {n}. {w}", "On to job {n}. {w}")
_WORD = re.compile(r"[\w.-]{4,}")
LONG_WORD = 8  # characters: one such word in common is no accident


class TerminalTeacher(ScriptedTeacher):
    """Knows a way for every job; what it says before a command refers to what the last one showed."""

    def __init__(self, environment: Environment, task: TaskSpec, mistake_rate: float = 0.0, seed: int = 0) -> None:
        super().__init__(environment, task, mistake_rate, seed)
        self._jobs = jobs_of(task)

    def plan(self) -> Plan:
        """See `ScriptedTeacher.plan`."""
        r = self.random
        stop = r.randrange(len(self._jobs)) if self.fails else None
        shown: list[str] = []  # the lines of the last result
        settled = ""  # what the job before was asked, for the next turn
        for number, job in enumerate(self._jobs):
            if number == stop:
                yield from self._stop_early(number)
                return
            for place, step in enumerate(job.steps):
                why = r.choice(step.why)
                if place == 0 and len(self._jobs) > 1:
                    why = phrases.pick(r, *(ON if number else FIRST), n=number + 1, w=why)
                elif (seen := that_matters(shown, step.command, job.folder)) and r.random() < 0.5:
                    s = phrases.quoted(seen, 80)
                    why = phrases.pick(r, "I see {s}. {w}", "It says {s}. {w}", "There is {s}. {w}", s=s, w=why)
                why, settled = settled + why, ""
                wrong = [(kind, {"command": command}) for kind, command in step.wrong]
                result = yield from self.do("run", {"command": step.command}, why, wrong)
                shown = result.content.split("\n")
            if job.answer is not None:
                settled = phrases.pick(r, "So it is {a}.\n", "The answer is {a}.\n", "{a}, then.\n", a=job.answer)
        opening = phrases.pick(
            r, "Everything is done.", "All as asked.", "The work is finished; nothing else was changed."
        )
        why = phrases.pick(r, "All goals are reached; I report.", "That was the last one.", "Nothing is left to do.")
        yield from self.answer("\n".join([opening, *self._report(self._jobs)]), settled + why)

    def _report(self, jobs: list[Job]) -> list[str]:
        """A line a job, and the answers."""
        lines = [f"- {job.done}" for job in jobs]
        for number, job in enumerate(jobs, 1):
            if job.answer is not None:
                lines.append(f"Answer {number}: {job.answer}" if len(self._jobs) > 1 else f"Answer: {job.answer}")
        return lines

    def _stop_early(self, done: int) -> Plan:
        """Report with jobs left over, or give up: the verdict shows that it was wrong."""
        r = self.random
        lines = self._report(self._jobs[:done])
        if r.random() < 0.6:
            text = phrases.pick(r, "Everything is done.", "That should be all.", "The rest looks fine as it is.")
            yield from self.answer("\n".join([text, *lines]), "I think that is all.", "mistake:premature_answer")
        else:
            text = f"I do not know how to go on with {self._jobs[done].folder}. I stop here."
            yield from self.answer("\n".join([*lines, text]), "I see no way to do the rest.", "mistake:gave_up")


def that_matters(lines: Sequence[str], command: str, folder: str) -> str:
    """The line of a result that the next command takes up: most of its words are in it. "" where none is.

    One long word in common is enough, or two of four letters and more; the job's folder and what is itself a part of
    the command say nothing.
    """
    words = set(_WORD.findall(command)) - {folder}
    best, score = "", 0
    for line in lines:
        common = words & set(_WORD.findall(line))
        told = len(common) + any(len(word) >= LONG_WORD for word in common)
        if told > max(score, 1) and line.strip() not in command:
            best, score = line.strip(), told
    return best
