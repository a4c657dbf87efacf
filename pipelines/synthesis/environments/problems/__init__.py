"""Problems of the family `reasoning`, by topic. A new topic is one function and one line here."""

from __future__ import annotations

from pipelines.synthesis.environments.problems import algebra, logic, numbers, science
from pipelines.synthesis.environments.problems.base import Maker, Problem, Step, calculate, number, same_answer

__all__ = ["TOPICS", "Maker", "Problem", "Step", "calculate", "number", "same_answer"]

TOPICS: dict[str, Maker] = {
    "bases": numbers.bases,
    "circuits": science.circuits,
    "dates": science.dates,
    "divisors": numbers.divisors,
    "draws": algebra.draws,
    "euclid": numbers.euclid,
    "fraction_sum": algebra.fraction_sum,
    "grid_paths": algebra.grid_paths,
    "heat": science.heat,
    "horner": algebra.horner,
    "knights": logic.knights,
    "linear_system": algebra.linear_system,
    "mixtures": science.mixtures,
    "modular_chain": numbers.modular_chain,
    "modular_power": numbers.modular_power,
    "motion": science.motion,
    "orders": logic.orders,
    "recurrence": numbers.recurrence,
    "remainders": numbers.remainders,
    "selections": algebra.selections,
    "series": algebra.series,
    "shopping": science.shopping,
    "stoichiometry": science.stoichiometry,
    "work_rates": science.work_rates,
}
