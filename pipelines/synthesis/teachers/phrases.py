"""What scripted teachers think aloud: short sentences about what they saw, varied by seed."""

from __future__ import annotations

import random

__all__ = ["again", "fault", "pick", "quoted", "recovery"]


_RECOVERIES = {  # kind of mistake: what is thought after it
    "malformed_arguments": (
        "The arguments were not valid JSON: {said}. I write the object again, carefully.",
        "My call could not be parsed ({said}). Once more with proper quoting.",
        "Broken JSON on my side: {said}. The same call, well formed.",
        "{said}: the arguments have to be one JSON object. Again.",
        "{tool} got no readable arguments ({said}). I mend the quoting and the brackets.",
    ),
    "unknown_tool": (
        "That tool does not exist here: {said}. The right one is {tool}.",
        "{said}: so I use {tool}.",
        "I took a name that is not on offer ({said}). What I mean is {tool}.",
        "Not available: {said}. {tool} does the same.",
        "{said}. I meant {tool}.",
    ),
    "wrong_argument": (
        "I used a wrong argument name: {said}. Corrected call.",
        "The schema of {tool} says otherwise ({said}). I fix the argument.",
        "{said}. The same call with the argument spelt as {tool} wants it.",
        "{tool} takes other arguments: {said}. Now with the right ones.",
        "I misremembered the arguments of {tool}: {said}. Again.",
    ),
    "wrong_path": (
        "Wrong path: {said}. Now the right one.",
        "{said}. I mistook the path; the right one follows.",
        "I wrote the path from memory: {said}. I take it as it was given.",
        "{said}: I named the wrong place. Corrected.",
    ),
    "bad_range": (
        "I asked for lines that are not there: {said}.",
        "{said}. So I start where the file really goes on.",
    ),
    "failed_edit": (
        "The edit did not apply: {said}. I copy the lines exactly as they are in the file.",
        "{said}. My old text was not what the file holds; I take it from what I read.",
    ),
    "ambiguous_edit": (
        "That text is not there only once: {said}. I give the whole lines.",
        "{said}. My old text was too short; now with enough around it.",
    ),
    "bad_expression": (
        "I typed the expression wrongly: {said}. Once more.",
        "{said}. A typing slip; the same expression, well formed.",
        "That is not what I meant to type ({said}). Again.",
    ),
    "bad_sql": (
        "The statement was wrong: {said}. I write it again with the names of the schema.",
        "{said}. My SQL, not the data; corrected below.",
    ),
    "no_such_row": (
        "Nothing was changed: {said}. I take the key that the query showed.",
        "{said}. I had the wrong key; the right one follows.",
    ),
    "wrong_column": (
        "Wrong column: {said}. The header row says which one it is.",
        "{said}. I mixed up the columns; now the right cell.",
    ),
    "missing_cell": (
        "That cell is not part of the table: {said}.",
        "{said}. I miscounted the rows; the place is looked up again.",
    ),
    "missing_folder": (
        "The folder is not there yet: {said}. I make it first.",
        "{said}. It has to be made before anything can go in.",
    ),
    "wrong_folder": (
        "I named a folder that does not exist: {said}. The task gives another one.",
        "{said}. That was not the place asked for; the right path follows.",
    ),
    "nothing_resolved": (
        "Too early: {said}. First the conflict has to be resolved.",
        "{said}. The commit comes after the conflicting lines are settled.",
    ),
    "target_taken": (
        "Refused: {said}. Good that nothing was overwritten; the right path is another.",
        "{said}. I must not replace what is there.",
    ),
    "wrong_message": (
        "No such mail: {said}. The Message-ID has to be copied whole.",
        "{said}. I copy the identifier from the mail that I read.",
    ),
    "wrong_address": (
        "That is no address: {said}. The header gives it.",
        "{said}. I need the mail address, not the name.",
    ),
    "wrong_event": (
        "{said}. I take the uid from the calendar line.",
        "The calendar does not know that: {said}. Corrected.",
    ),
    "bad_code": (
        "My own snippet was wrong: {said}. I correct it.",
        "{said}: an error of mine in the program, easily mended.",
    ),
    "misspelt_command": (
        "A typing slip: {said}. The same command, spelt right.",
        "{said}: I mistyped the program's name.",
    ),
    "bad_option": (
        "That option does not exist: {said}. So without it.",
        "{said}: I made that option up. The plain command does it.",
        "{said}. I do it with options that there are.",
    ),
    "bad_script": (
        "A slip in my one-liner: {said}. I write it out properly.",
        "{said}: something is missing in the script. Corrected.",
    ),
    "bad_revision": (
        "git knows no such revision: {said}. The log shows the right one.",
        "{said}. I take the name from what the log printed.",
    ),
    "bad_regex": (
        "My pattern was broken: {said}. A proper one.",
        "{said}. I mend the expression.",
    ),
    "wrong_document": (
        "I got the id wrong: {said}. The results show it.",
        "{said}. The id as the search printed it.",
    ),
    "wrong_calendar": (
        "That is the calendar of a person: {said}. The meetings are in their own file.",
        "{said}. Meetings stand in the calendar of meetings, there it can be moved.",
    ),
    "wrong_sheet": (
        "The sheet has another name: {said}.",
        "{said}. I take the name that the file showed.",
    ),
    "wrong_format": (
        "The wrong kind of file: {said}. A csv is asked for.",
        "{said}. The task says csv, so csv it is.",
    ),
    "folder_for_file": (
        "I left the name of the file out: {said}.",
        "{said}. The whole new path, then.",
    ),
    "empty_query": (
        "I sent a query without a word in it. Now with the words that I look for.",
        "{said}: of course, I left the words out.",
    ),
    "bad_argument": (
        "The schema does not allow that: {said}. A value that it allows, then.",
        "{said}. I stay within what {tool} takes.",
    ),
    "bad_page": (
        "There is no such page: {said}.",
        "{said}. So I take one that exists.",
    ),
}


def pick(generator: random.Random, *options: str, **values: object) -> str:
    """One of the sentences, filled in."""
    return generator.choice(options).format(**values)


def quoted(text: str, limit: int = 90) -> str:
    """A piece of code or output for a sentence: one line, bounded."""
    line = " ".join(text.split())
    return f"`{line if len(line) <= limit else line[: limit - 1] + '…'}`"


def again(generator: random.Random) -> str:
    """Before the same failing call once more."""
    return pick(
        generator,
        "Perhaps that was a hiccup. I try the same call once more.",
        "I will just repeat it.",
        "Same call again, to be sure.",
        "That should have worked. Once more as it was.",
        "Odd. I send it again.",
    )


def recovery(generator: random.Random, kind: str, observation: str, tool: str) -> str:
    """After a failed call: what the observation says and what is done about it."""
    said = quoted(_telling(observation).removeprefix("the arguments are not valid JSON: "), 110)
    options = _RECOVERIES.get(kind, ("That failed: {said}. I correct the call.", "{said}. Another try, corrected."))
    return pick(generator, *options, said=said, tool=tool)


def _telling(observation: str) -> str:
    """The line of a failure that says what is wrong: the first, of a traceback the error at its end."""
    lines = observation.removeprefix("Error: ").split("\n")
    if "Traceback (most recent call last):" in lines:
        errors = [line for line in lines if line and not line.startswith((" ", "exit code", "Traceback"))]
        return errors[-1] if errors else lines[0]
    return lines[0]


_FAULTS = {
    "comparison": (
        "{old} compares the wrong way round or at the wrong bound; it should read {new}.",
        "The comparison in {old} is off: the expected results need {new}.",
    ),
    "arithmetic": (
        "{old} uses the wrong operator; {new} gives the expected values.",
        "The operator in {old} must be the one of {new}.",
    ),
    "off_by_one": (
        "{old} is off by one; with {new} the counts agree with the tests.",
        "A bound is one off: {old} should be {new}.",
    ),
    "boolean_operator": (
        "{old} joins its conditions wrongly; {new} is what the tests describe.",
        "`and` and `or` are mixed up in {old}: {new}.",
    ),
    "swapped_arguments": (
        "The arguments in {old} are in the wrong order: {new}.",
        "{old} passes its arguments swapped; {new} is right.",
    ),
    "negated_condition": (
        "The condition in {old} is inverted; it has to be {new}.",
        "{old} takes the wrong branch: {new}.",
    ),
    "dropped_branch": (
        "A branch lost its body: where {old} stands, {new} belongs.",
        "{old} does nothing where it should do {new}.",
    ),
    "dropped_statement": (
        "A statement is missing: {old} should be {new}.",
        "Instead of {old} there has to be {new}, or the result is never updated.",
    ),
    "wrong_constant": ("A constant is wrong in {old}: {new}.", "{old} has a wrong literal; the tests need {new}."),
    "wrong_return": (
        "It returns the wrong thing: {old} instead of {new}.",
        "{old} gives back something else than the tests want; {new} is right.",
    ),
    "wrong_method": (
        "The wrong function is called in {old}; {new} does what is meant.",
        "{old} calls the wrong function; {new} is meant.",
    ),
    "slice_bound": (
        "The slice in {old} has a wrong bound: {new}.",
        "{old} cuts at the wrong place; {new} keeps the right part.",
    ),
    "dropped_sign": ("A sign or a `not` got lost in {old}: {new}.", "{old} misses its operator; it should be {new}."),
    "loop_exit": (
        "The loop leaves or goes on at the wrong place: {old} must be {new}.",
        "{old} is the wrong way to go on here; {new}.",
    ),
    "wrong_exception": ("The wrong exception is raised in {old}: {new}.", "{old} raises what nobody expects; {new}."),
    "wrong_default": (
        "A default value is wrong: {old} should be {new}.",
        "The default in {old} does not fit the tests; {new} does.",
    ),
    "wrong_variable": ("A wrong variable is used in {old}: {new}.", "{old} mixes up two parameters; {new} is meant."),
}


def fault(generator: random.Random, kind: str, old: str, new: str) -> str:
    """What is wrong with a line and what it should be."""
    options = _FAULTS.get(kind, ("{old} is wrong; it should be {new}.",))
    return pick(generator, *options, old=quoted(old), new=quoted(new))
