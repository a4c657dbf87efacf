"""Science and everyday problems with exact numbers: motion, heat, circuits, chemistry, mixtures, work, money, dates."""

from __future__ import annotations

import datetime
import random
from fractions import Fraction

from pipelines.synthesis.environments.problems.base import Problem, Step, number, size

__all__ = ["circuits", "dates", "heat", "mixtures", "motion", "shopping", "stoichiometry", "work_rates"]

MASSES = {"H": 1, "C": 12, "N": 14, "O": 16, "Na": 23, "Mg": 24, "Al": 27, "S": 32, "Ca": 40, "Fe": 56}
REACTIONS = (
    ("2 H2 + O2 -> 2 H2O", ("H2", {"H": 2}, 2), ("H2O", {"H": 2, "O": 1}, 2)),
    ("CH4 + 2 O2 -> CO2 + 2 H2O", ("CH4", {"C": 1, "H": 4}, 1), ("H2O", {"H": 2, "O": 1}, 2)),
    ("N2 + 3 H2 -> 2 NH3", ("N2", {"N": 2}, 1), ("NH3", {"N": 1, "H": 3}, 2)),
    ("4 Fe + 3 O2 -> 2 Fe2O3", ("Fe", {"Fe": 1}, 4), ("Fe2O3", {"Fe": 2, "O": 3}, 2)),
    ("CaCO3 -> CaO + CO2", ("CaCO3", {"Ca": 1, "C": 1, "O": 3}, 1), ("CO2", {"C": 1, "O": 2}, 1)),
    ("2 Mg + O2 -> 2 MgO", ("Mg", {"Mg": 1}, 2), ("MgO", {"Mg": 1, "O": 1}, 2)),
    ("4 Al + 3 O2 -> 2 Al2O3", ("Al", {"Al": 1}, 4), ("Al2O3", {"Al": 2, "O": 3}, 2)),
    ("S + O2 -> SO2", ("S", {"S": 1}, 1), ("SO2", {"S": 1, "O": 2}, 1)),
)
NAMES = ("Mara", "Jonas", "Aiko", "Tariq", "Lena", "Pavel", "Noor", "Eli", "Ines", "Kofi")


def motion(g: random.Random, difficulty: float) -> Problem:
    """A journey in stretches: distance and average speed."""
    stretches = [(g.randint(2, 30), g.randint(2, 40)) for _ in range(size(difficulty, 1, 6))]
    speed, steps, distance, time, before = 0, [], Fraction(0), 0, g.randint(0, 6)
    speed, text, parts = before, [], []
    for index, (acceleration, seconds) in enumerate(stretches, 1):
        rate = Fraction(acceleration, 10)
        step = speed * seconds + rate * seconds**2 / 2
        steps.append(
            Step(
                (
                    f"Stretch {index}: s = v t + a t^2 / 2 = {number(speed)} "
                    f"* {seconds} + ({number(rate)}) * {seconds}^2 / 2"
                ),
                f"({number(speed)}) * {seconds} + ({number(rate)}) * {seconds} ** 2 / 2",
                number(step),
            )
        )
        parts.append(number(step))
        end = speed + rate * seconds
        steps.append(
            Step(
                f"Speed after it: ({number(speed)}) + ({number(rate)}) * {seconds}",
                f"({number(speed)}) + ({number(rate)}) * {seconds}",
                number(end),
            )
        )
        text.append(f"{number(rate)} m/s^2 for {seconds} s")
        distance, time, speed = distance + step, time + seconds, end  # type: ignore[assignment]
    if len(parts) > 1:
        steps.append(Step(f"In all {' + '.join(parts)}", " + ".join(parts), number(distance)))
    if g.random() < 0.5:
        question, answer = "How many metres does it cover in all?", distance
    else:
        question, answer = "What is its average speed in m/s over the whole time?", distance / time
        steps.append(
            Step(f"Average speed = ({number(distance)}) / {time}", f"({number(distance)}) / {time}", number(answer))
        )
    statement = (
        f"A {g.choice(['train', 'sled', 'probe', 'cart'])} moves at {before} "
        f"m/s and then accelerates at {', then at '.join(text)}. {question}"
    )
    program = (
        f"from fractions import Fraction as F\nv, s, t = F({before}), F(0), 0\nfor a, d in {stretches}:\n"
        "    s, v, t = s + v * d + F(a, 10) * d * d / 2, v + F(a, 10) "
        f"* d, t + d\nprint({'s' if 'metres' in question else 's / t'})"
    )
    return Problem("motion", statement, steps, f"The answer is {number(answer)}.", number(answer), program)


def heat(g: random.Random, difficulty: float) -> Problem:
    """The final temperature of mixed portions of water."""
    parts = [(g.randint(1, 9) * 100, g.randint(5, 95)) for _ in range(size(difficulty, 2, 7))]
    mass, steps, top = 0, [], 0
    for grams, degrees in parts:
        steps.append(
            Step(f"{grams} g at {degrees} °C brings {grams} * {degrees}", f"{grams} * {degrees}", str(grams * degrees))
        )
        mass, top = mass + grams, top + grams * degrees
    answer = Fraction(top, mass)
    brought = " + ".join(str(grams * degrees) for grams, degrees in parts)
    steps.append(Step(f"Together {brought}", brought, str(top)))
    steps.append(Step(f"Spread over {mass} g: {top} / {mass}", f"{top} / {mass}", number(answer)))
    listing = ", ".join(f"{grams} g at {degrees} °C" for grams, degrees in parts)
    statement = (
        f"Portions of water are mixed without loss of heat: {listing}. What is the final temperature in °C (exact)?"
    )
    program = (
        f"from fractions import Fraction as F\np = {parts}\nprint(F(sum(m * t for m, t in p), sum(m for m, _ in p)))"
    )
    return Problem("heat", statement, steps, f"The mixture has {number(answer)} °C.", number(answer), program)


def circuits(g: random.Random, difficulty: float) -> Problem:
    """Resistors in series and parallel, then Ohm's law."""
    value, text = Fraction(g.randint(2, 20)), ""
    start, steps, code = number(value), [], []
    for _ in range(size(difficulty, 2, 8)):
        other = g.randint(2, 24)
        if g.random() < 0.5:
            new, how, expression = value + other, "in series with", f"({number(value)}) + {other}"
            code.append(f"r = r + {other}")
        else:
            new, how = value * other / (value + other), "in parallel with"
            expression = f"({number(value)}) * {other} / (({number(value)}) + {other})"
            code.append(f"r = r * {other} / (r + {other})")
        text += f"{', then' if text else 'first'} {how} {other} ohm"
        steps.append(Step(f"{how} {other} ohm: {expression}", expression, number(new)))
        value = new
    volts = g.randint(2, 48)
    answer = volts / value
    steps.append(Step(f"I = U / R = {volts} / ({number(value)})", f"{volts} / ({number(value)})", number(answer)))
    statement = (
        f"A resistor of {start} ohm is combined with others, {text}. The whole "
        f"is connected to {volts} V. What current flows, in ampere (exact)?"
    )
    program = "\n".join(["from fractions import Fraction as F", f"r = F({start})", *code, f"print({volts} / r)"])
    return Problem("circuits", statement, steps, f"The current is {number(answer)} A.", number(answer), program)


def stoichiometry(g: random.Random, difficulty: float) -> Problem:
    """Mass of a product from mass of a reactant."""
    equation, (left, left_atoms, left_count), (right, right_atoms, right_count) = g.choice(REACTIONS)
    masses = []
    steps = [Step(f"From the equation {equation}: {left_count} mol {left} give {right_count} mol {right}")]
    for name, atoms in ((left, left_atoms), (right, right_atoms)):
        expression = " + ".join(f"{n} * {MASSES[a]}" for a, n in atoms.items())
        masses.append(sum(n * MASSES[a] for a, n in atoms.items()))
        steps.append(Step(f"Molar mass of {name}: {expression}", expression, str(masses[-1])))
    grams = g.randint(1, 10 * size(difficulty, 1, 40))
    purity = 100 if difficulty < 4 else g.choice([40, 50, 60, 75, 80, 90])
    pure = Fraction(grams * purity, 100)
    if purity < 100:
        steps.append(Step(f"Pure {left}: {grams} * {purity} / 100", f"{grams} * {purity} / 100", number(pure)))
    moles = pure / masses[0]
    steps.append(
        Step(f"Amount of {left}: ({number(pure)}) / {masses[0]} mol", f"({number(pure)}) / {masses[0]}", number(moles))
    )
    answer = moles * right_count / left_count * masses[1]
    last = f"({number(moles)}) * {right_count} / {left_count} * {masses[1]}"
    steps.append(Step(f"Mass of {right}: {last}", last, number(answer)))
    table = ", ".join(f"{a} {MASSES[a]}" for a in sorted({*left_atoms, *right_atoms}))
    quality = f" of {purity} % pure" if purity < 100 else " of"
    statement = (
        f"How many grams of {right} come from {grams} g{quality} {left} by "
        f"{equation}? Use the atomic masses {table} g/mol; give the exact value."
    )
    program = (
        f"from fractions import Fraction as F\nprint(F({grams} * {purity}, "
        f"100) / {masses[0]} * {right_count} / {left_count} * {masses[1]})"
    )
    return Problem("stoichiometry", statement, steps, f"That is {number(answer)} g.", number(answer), program)


def mixtures(g: random.Random, difficulty: float) -> Problem:
    """A solution that is diluted, poured off and strengthened."""
    volume, percent = Fraction(g.randint(2, 20) * 10), g.randint(5, 60)
    salt, steps, story = volume * percent / 100, [], []
    steps.append(
        Step(
            f"Salt at the start: {number(volume)} * {percent} / 100",
            f"{number(volume)} * {percent} / 100",
            number(salt),
        )
    )
    code = [f"v, s = F({number(volume)}), F({number(volume)}) * {percent} / 100"]
    first = f"{number(volume)} litres of a {percent} % salt solution"
    for _ in range(size(difficulty, 1, 6)):
        amount = g.randint(1, 9) * 5
        kind = g.choice(["water", "pour", "strong"])
        if kind == "pour" and amount < volume:
            story.append(f"{amount} litres are poured off")
            expression = f"({number(salt)}) * ({number(volume)} - {amount}) / ({number(volume)})"
            salt, volume = salt * (volume - amount) / volume, volume - amount
            code.append(f"s, v = s * (v - {amount}) / v, v - {amount}")
            steps.append(Step(f"Pouring off {amount} litres leaves salt {expression}", expression, number(salt)))
        elif kind == "strong":
            strength = g.randint(10, 80)
            story.append(f"{amount} litres of a {strength} % solution are added")
            expression = f"({number(salt)}) + {amount} * {strength} / 100"
            salt, volume = salt + Fraction(amount * strength, 100), volume + amount
            code.append(f"s, v = s + F({amount} * {strength}, 100), v + {amount}")
            steps.append(Step(f"Salt is now {expression}", expression, number(salt)))
        else:
            story.append(f"{amount} litres of water are added")
            volume += amount
            code.append(f"v = v + {amount}")
            steps.append(Step(f"Water changes only the volume, now {number(volume)} litres"))
    answer = salt / volume * 100
    steps.append(
        Step(
            f"Concentration: ({number(salt)}) / ({number(volume)}) * 100",
            f"({number(salt)}) / ({number(volume)}) * 100",
            number(answer),
        )
    )
    statement = (
        f"A tank holds {first}. Then {'; then '.join(story)} (always "
        "well stirred). What is the concentration in percent (exact)?"
    )
    program = "\n".join(["from fractions import Fraction as F", *code, "print(s / v * 100)"])
    return Problem("mixtures", statement, steps, f"It is {number(answer)} %.", number(answer), program)


def work_rates(g: random.Random, difficulty: float) -> Problem:
    """Machines that fill or empty together."""
    hours = [g.randint(2, 15) for _ in range(size(difficulty, 2, 6))]
    drains = [False, *(g.random() < 0.3 for _ in hours[1:])]
    rate, steps = Fraction(0), []
    for hour, drain in zip(hours, drains, strict=True):
        sign = "-" if drain else "+"
        steps.append(
            Step(
                f"Rate so far: ({number(rate)}) {sign} 1/{hour}",
                f"({number(rate)}) {sign} 1 / {hour}",
                number(rate + (-1 if drain else 1) * Fraction(1, hour)),
            )
        )
        rate += (-1 if drain else 1) * Fraction(1, hour)
    if rate <= 0:
        return work_rates(g, difficulty)
    answer = 1 / rate
    steps.append(Step(f"Time for one tank: 1 / ({number(rate)})", f"1 / ({number(rate)})", number(answer)))
    parts = [
        f"pipe {i} {'empties' if drain else 'fills'} it in {hour} h"
        for i, (hour, drain) in enumerate(zip(hours, drains, strict=True), 1)
    ]
    statement = (
        f"A tank has several pipes: {', '.join(parts)}. With all of "
        "them open, after how many hours is the empty tank full (exact)?"
    )
    terms = " + ".join(f"F({-1 if drain else 1}, {hour})" for hour, drain in zip(hours, drains, strict=True))
    return Problem(
        "work_rates",
        statement,
        steps,
        f"After {number(answer)} hours.",
        number(answer),
        f"from fractions import Fraction as F\nprint(1 / ({terms}))",
    )


def _single(goods: str) -> str:
    """The name of one of several things: brushes -> brush, lamps -> lamp."""
    return goods.removesuffix("es") if goods.endswith("shes") else goods.removesuffix("s")


def shopping(g: random.Random, difficulty: float) -> Problem:
    """A bill with discounts and tax, in cents."""
    name, items = g.choice(NAMES), []
    goods = g.sample(
        ["notebooks", "lamps", "cables", "mugs", "chairs", "brushes", "seed bags", "filters"], size(difficulty, 2, 6)
    )
    total, steps, priced = Fraction(0), [], []
    for good in goods:
        count, price = g.randint(1, 9), g.randint(3, 60)
        priced.append(f"{count} * {price}")
        items.append(f"{count} {good} at {price} euros each" if count > 1 else f"1 {_single(good)} at {price} euros")
        total += count * price
        steps.append(
            Step(
                f"{good}: {count} * {price}, sum ({number(total - count * price)}) + {count} * {price}",
                f"{number(total - count * price)} + {count} * {price}",
                number(total),
            )
        )
    code = [f"t = F({' + '.join(priced)})"]
    changes = []
    for _ in range(size(difficulty, 1, 4)):
        percent = g.choice([5, 10, 15, 20, 25])
        sign, word = g.choice([(-1, "discount"), (1, "surcharge")])
        expression = f"({number(total)}) * {100 + sign * percent} / 100"
        total = total * (100 + sign * percent) / 100
        changes.append(f"a {word} of {percent} %")
        code.append(f"t = t * {100 + sign * percent} / 100")
        steps.append(Step(f"After {changes[-1]}: {expression}", expression, number(total)))
    statement = (
        f"{name} buys {', '.join(items)}. On the sum come, one after the other, "
        f"{', then '.join(changes)}. How many euros does {name} pay (exact value)?"
    )
    return Problem(
        "shopping",
        statement,
        steps,
        f"{name} pays {number(total)} euros.",
        number(total),
        "\n".join(["from fractions import Fraction as F", *code, "print(t)"]),
    )


def dates(g: random.Random, difficulty: float) -> Problem:
    """The weekday some days later."""
    start = datetime.date(g.randint(1950, 2050), g.randint(1, 12), g.randint(1, 28))
    days = g.randint(10, 10 ** size(difficulty, 2, 5))
    end = start + datetime.timedelta(days=days % 7)
    rest = days % 7
    steps = [
        Step(f"Whole weeks change nothing: {days} mod 7", f"{days} % 7", str(rest)),
        Step(
            f"{rest} day{'s' if rest > 1 else ''} after a {start:%A}: "
            + ", ".join(f"{start + datetime.timedelta(days=k):%A}" for k in range(1, rest + 1))
            if rest
            else "No shift is left"
        ),
    ]
    statement = f"{start.day} {start:%B %Y} is a {start:%A}. Which weekday is it {days} days later?"
    program = (
        f"import datetime\nprint((datetime.date({start.year}, {start.month}, "
        f"{start.day}) + datetime.timedelta(days={days})).strftime('%A'))"
    )
    return Problem("dates", statement, steps, f"It is a {end:%A}.", f"{end:%A}", program)
