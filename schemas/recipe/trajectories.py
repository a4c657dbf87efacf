"""Recipe models of the trajectory half: synthesized tasks and recorded runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from schemas.recipe.base import Name, Share, Strict, check_difficulty
from schemas.recipe.endpoint import CallStyle, EndpointConfig

__all__ = ["RecordedConfig", "SynthesizedConfig", "TrajectoriesConfig"]


class SynthesizedConfig(Strict):
    """`n` tasks of one family with difficulties spread evenly over the closed range `difficulty` (1 easy to 10 hard).

    teacher `scripted` knows the solution and errs at the share `mistake_rate` of its steps; `openai` is the model
    behind `endpoint`, which makes its own mistakes. `call_styles` are the shares of the tasks whose trajectories are
    written in each scaffold ({native: 0.5, react: 0.5}; none: all native).
    """

    family: Name
    n: int = Field(ge=1)
    teacher: Literal["scripted", "openai"] = "scripted"
    mistake_rate: Share = 0.3
    difficulty: tuple[float, float] = (1, 10)
    endpoint: EndpointConfig | None = Field(default=None, exclude_if=lambda value: value is None)
    call_styles: dict[CallStyle, Share] = Field(default={}, exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _parts_fit(self) -> SynthesizedConfig:
        check_difficulty(self.difficulty)
        if self.teacher == "openai" and self.endpoint is None:
            raise ValueError(
                "teacher openai needs 'endpoint', for example {base_url: http://localhost:8000/v1, model: m}"
            )
        if self.teacher == "scripted" and self.endpoint is not None:
            raise ValueError("'endpoint' has no effect with teacher scripted: remove it, or set teacher: openai")
        if self.teacher == "openai" and self.call_styles:
            raise ValueError("a model calls as it is told to: set endpoint.call_style in place of 'call_styles'")
        total = sum(self.call_styles.values())
        if self.call_styles and abs(total - 1) > 1e-6:
            raise ValueError(f"the call_styles sum to {total:g}: they must sum to 1")
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
