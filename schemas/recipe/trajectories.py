"""Recipe models of the trajectory half: synthesized tasks and recorded runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from schemas.recipe.base import Name, Share, Strict, check_difficulty

__all__ = ["RecordedConfig", "SynthesizedConfig", "TrajectoriesConfig"]


class SynthesizedConfig(Strict):
    """`n` tasks of one family with difficulties spread evenly over the closed range `difficulty` (1 easy to 10 hard).

    `mistake_rate` is the share of the scripted teacher's steps at which it errs.
    """

    family: Name
    n: int = Field(ge=1)
    teacher: Literal["scripted"] = "scripted"
    mistake_rate: Share = 0.3
    difficulty: tuple[float, float] = (1, 10)

    @model_validator(mode="after")
    def _range_is_ordered(self) -> SynthesizedConfig:
        check_difficulty(self.difficulty)
        return self


class RecordedConfig(Strict):
    """Recorded agent runs: files or a pattern, and their format (auto finds it by content)."""

    path: str
    format: str = "auto"


class TrajectoriesConfig(Strict):
    """Where trajectories come from and which policy decides what is trained.

    `rules` changes single rules of the policy: {R5: {action: drop}, R14: {characters: 50000}}, or {R7: flag} for an
    action alone. Which rules, actions and thresholds there are is filters.trajectory's to say.
    """

    synthesized: list[SynthesizedConfig] = []
    recorded: list[RecordedConfig] = []
    policy: Name = "nanbeige"
    rules: dict[Name, dict[Name, float | str]] = {}

    @field_validator("rules", mode="before")
    @classmethod
    def _actions_alone(cls, given: Any) -> Any:
        """`R7: flag` means {action: flag}; YAML reads the word off as false."""
        if not isinstance(given, dict):
            return given
        spelled = {}
        for rule, changes in given.items():
            settings = changes if isinstance(changes, dict) else {"action": changes}
            spelled[rule] = {
                key: "off" if key == "action" and value is False else value for key, value in settings.items()
            }
        return spelled
