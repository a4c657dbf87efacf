"""The scripted teacher of the family `office`: goal after goal, it reads, reasons with what it read, and acts."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pipelines.synthesis.environments.offices.world import ANSWERS, Goal
from pipelines.synthesis.teachers.office_hand import OfficeHand
from pipelines.synthesis.teachers.office_plans_data import plan_questions, plan_reconciling, plan_sheet
from pipelines.synthesis.teachers.office_plans_files import plan_filing, plan_merging
from pipelines.synthesis.teachers.office_plans_mail import plan_clashes, plan_replies, plan_requests
from pipelines.synthesis.teachers.scripted import Plan
from schemas.trajectory import Message

__all__ = ["OfficeTeacher"]

PLANS: dict[str, Callable[[OfficeHand, Goal], Plan]] = {
    "file": plan_filing,
    "rename": plan_filing,
    "merge": plan_merging,
    "reconcile": plan_reconciling,
    "answer": plan_questions,
    "reply": plan_replies,
    "clash": plan_clashes,
    "sheet": plan_sheet,
    "requests": plan_requests,
}
ACTS = frozenset({"move_file", "write_file", "edit_sheet", "update_database", "draft_mail", "move_event"})


class OfficeTeacher(OfficeHand):
    """Knows the goals from the world. A run that fails on purpose ends before one of its acts, or answers wrongly."""

    def plan(self) -> Plan:
        """See `ScriptedTeacher.plan`."""
        last = self._last_act() if self.fails else None
        work = self._work()
        acts = 0
        results: list[Message] | None = None
        while True:
            try:
                turn = next(work) if results is None else work.send(results)
            except StopIteration:
                break
            if last is not None and turn.tool_calls[0].name in ACTS and not (turn.label or "").startswith("mistake"):
                acts += 1
                if acts > last:
                    yield from self._stop_early()
                    return
            results = yield turn
        yield from self._finish()

    def _last_act(self) -> int:
        """How many acts a failing run makes before it stops; one with answers only makes none."""
        acts = 0
        for goal in self.world.goals:
            acts += {"merge": 1, "reconcile": 1, "answer": 0, "sheet": 1}.get(goal.kind, len(goal.wants))
        return self.random.randrange(acts) if acts else 0

    def _work(self) -> Generator[Message, list[Message], None]:
        goals = self.world.goals
        if len(goals) > 1 or self.random.random() < 0.15:
            yield from self.look(
                ".",
                "First a look at the shared folder.",
                "What is in the shared folder?",
                "I start with the top folder.",
            )
        for number, goal in enumerate(goals, 1):
            if len(goals) > 1:
                self.think(
                    "Task {n} of {m}.",
                    "Now number {n}.",
                    "On to task {n}.",
                    "Number {n} on the list.",
                    n=number,
                    m=len(goals),
                )
            yield from PLANS[goal.kind](self, goal)

    def _finish(self) -> Plan:
        label = "step"
        answers = dict(self.answers)
        if self.fails and answers:  # nothing but answers was asked for
            label = "mistake:wrong_answer"
            wrong = self.random.choice(sorted(answers))
            answers[wrong] = self.pick("unknown", "not stated in the notes", "see the notes")
        opening = self.pick(
            "Done.", "All is done.", "Finished; here is what I did.", "The work is complete.", "That is everything."
        )
        lines = [f"{ANSWERS} {number}: {text}" for number, text in sorted(answers.items())]
        why = self.take_thoughts(
            self.pick(
                "I can report.", "Nothing is left to do.", "That was the last of it.", "Everything asked for is done."
            )
        )
        yield from self.answer("\n".join([opening, *self.summary, *lines]), why, label)

    def _stop_early(self) -> Plan:
        """Answer with work left: sure of oneself, or giving up."""
        if self.random.random() < 0.6:
            text = self.pick(
                "Everything is done as asked.", "All tasks are completed.", "I have finished; the rest looks fine."
            )
            yield from self.answer(text, "I think that this is enough.", "mistake:premature_answer")
        else:
            text = self.pick(
                "I could not finish this. I stop here.", "This is more than I can do; I leave the rest to you."
            )
            yield from self.answer(text, "I do not see how to go on.", "mistake:gave_up")
