"""What is said of a command line that the parser of commands refuses: what was wrong, and what would have been right.

Nothing here is imported while a command is understood.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from mlsysim import vocabulary
from mlsysim.cli.plan_options import is_hardware, option
from mlsysim.errors import did_you_mean, either, nearest
from mlsysim.vocabulary import meant_for, valued

_VALUES = {
    "--chip": "--chip H100",
    "--on": "--on 512xH100",
    "--qps": "--qps 5",
    "--tokens": "--tokens 2T",
    "--deadline": "--deadline 30d",
    "--save": "--save mine, its name in your zoo",
    "-o": "-o json",
    "-b": "-b 64",
    "-s": "-s 4096",
    "-p": "-p fp8",
    "-e": "-e 0.5",
    "--output": "--output json",
    "--plot": "--plot front.svg",
    "--host": "--host 127.0.0.1",
    "--port": "--port 8000",
    "--prefix-hits": "--prefix-hits 0.5, a share of the prompts; of a trace with blocks and of --turns it follows by itself",
    "--autoscale": "--autoscale 2:8, least and most replicas",
    "--offload": "--offload 1, a share of the optimizer's state",
}
_COMMANDS = {"training": "train", "serving": "serve", "inference": "eval", "rl": "rl"}
_FILES = ("--config", "--plan", "--file", "--config-file", "--plan-file")


def of_usage(error: Exception, said: str) -> str:
    """What the parser of commands says, with what would have been right."""
    name = str(getattr(error, "option_name", None) or "")
    if name and "requires an argument" in said:
        return f"{name} needs a value after it, such as {_value_of(name)}."
    if "unable to parse" in said:
        option, kind = said.split("'")[1], "a whole number" if "integer" in said else "a number"
        return f"{option} takes {kind}, and what was given is none."
    if wrong := re.match(r"Invalid value for '(--[\w-]+)': Input should be (.+?)\.?$", said):
        return f"{wrong[1]} must be {wrong[2]}."
    if name:
        return _of_an_option(error, name)
    if said.startswith("Missing argument"):
        return _missing(error, said)
    if said.startswith("No such command"):
        return _no_command(error, said)
    if said.startswith("Got unexpected extra argument"):
        return _of_words(error, said.partition("(s) (")[2].rstrip(")") or said.partition("(")[2].rstrip(")"))
    return said


# --- options ------------------------------------------------------------------------------------------------------------


def _of_an_option(error: Exception, name: str) -> str:
    """What is said of an option that the command has not."""
    context: Any = getattr(error, "ctx", None)
    command = getattr(context, "info_name", None)
    near = getattr(error, "possibilities", None) or ()
    takes = {flag for each in context.command.get_params(context) for flag in each.opts} if context else set()
    if (whole := _one_dash(name)) and (f"-{whole.partition('=')[0]}") in takes:
        return f"{whole.partition('=')[0]} has two dashes: -{whole}{_after(whole)}."
    instead = _with_value(name, _instead(name.replace("_", "-")))
    if name in _FILES:
        instead = "the file alone, as in `mlsysim eval plan.toml`, or its keys as options"
    if instead.startswith("--on ") and "--on" not in takes:
        instead = ""
    if not instead and (owner := _belongs(name)):
        own = meant_for(name, next((task for task, each in _COMMANDS.items() if each == command), ""))
        if command == "synthesize":
            own = {"--qps": "throughput '10/s'", "--slo": "latency 20ms, the time of a pass"}.get(name, own)
            own = "latency 20ms, the time of a pass" if name in ("--tpot", "--ttft") else own
        if command == "rl" and re.fullmatch("--(osl|output-(tokens|len)|max-(new-)?tokens)", name):
            own = "response 2000"
        own = own or next((flag[2:] for flag in takes if f"{flag}s" == name), "")
        return f"There is no option {name} here: it belongs to {owner}{f'; write --{own}' if own else ''}."
    if instead:
        return f"There is no option {name}; {vocabulary.remedy(instead)}."
    return f"There is no option {name}; {did_you_mean(nearest(name, near) or near) if near else '--help lists them.'}"


def _one_dash(name: str) -> str:
    """The word that an option of one letter was read out of: -tp of -t."""
    return next(
        (word for word in sys.argv if len(name) == 2 and word.startswith(name) and re.match(r"-[a-z][a-z-]", word)), ""
    )


def _after(word: str) -> str:
    """The value that follows a word, if it has none of its own."""
    following = sys.argv[sys.argv.index(word) + 1 :][:1]
    return f" {following[0][:40]}" if following and "=" not in word and not following[0].startswith("-") else ""


def _value_of(name: str) -> str:
    """An option with a value that it takes."""
    if name in _VALUES:
        return _VALUES[name]
    from mlsysim.plans.plan import Plan
    from mlsysim.plans.schema import key_named

    key = key_named(name, Plan.leaves())
    leaf = None if key is None else Plan.leaves()[key]
    if leaf is not None and leaf.quantity is not None:
        return f"{name} '{leaf.quantity.example}'"
    if leaf is not None and leaf.choices:
        return f"{name} {leaf.choices[0]}"
    if leaf is not None and leaf.type is int:
        return f"{name} {(leaf.field.examples or (8,))[0]}"
    return "those that --help shows"


def _belongs(name: str) -> str:
    """What an option that is a key of a plan is for, and which command takes it; nothing of others."""
    from mlsysim.plans.plan import Plan
    from mlsysim.plans.schema import key_named, tasks_text

    known = Plan.leaves()
    key = key_named(name, known)
    tasks = known[key].tasks if key is not None else ()
    return f"{tasks_text(*tasks)} ({either(f'`mlsysim {_COMMANDS[task]}`' for task in tasks)})" if tasks else ""


def _instead(option: str) -> str:
    """What says here what an option of other programs says; nothing where that is not known."""
    key, example = vocabulary.MEANT.get(option.removeprefix("--").replace("-", "_"), ("", ""))
    return str(vocabulary.WRITTEN.get(option, f"--{key.replace('_', '-')} {example}" if key else ""))


def _with_value(name: str, example: str) -> str:
    """What would have been right, with the value that was given where it can stand for the example's, and the chip that was named."""
    starts = name if len(name) == 2 else f"{name}="
    word = next((each for each in sys.argv if each == name or each.startswith(starts)), "")
    given = sys.argv[sys.argv.index(word) + 1 :][:1] if word else []
    if len(word) > len(name):
        given = [word.removeprefix(starts)]
    option, _, value = example.partition(" ")
    if not value or not given or given[0].startswith("-"):
        return example
    own = given[0] if option == "-p" and is_format(given[0]) else valued(value, given[0])
    chip = next((each for each in sys.argv[2:] if each[:1].isalpha() and each != given[0] and is_hardware(each)), "")
    return f"{option} {re.sub(r'xH100$', f'x{chip}', own) if chip else own}"


def is_format(text: str) -> bool:
    """Whether a word is a number format."""
    from mlsysim.errors import UnknownNameError
    from mlsysim.physics.precision import precision_name

    try:
        return bool(precision_name(text))
    except UnknownNameError:
        return False


# --- words --------------------------------------------------------------------------------------------------------------


def _of_words(error: Exception, words: str) -> str:
    """What is said of words that are more than a command takes."""
    context: Any = getattr(error, "ctx", None)
    command, first = context.info_name, words.split(" ")[0]
    if dash := next((word for word in sys.argv[1:] if word[:1] in "\u2012\u2013\u2014\u2212"), ""):
        whole = f"--{dash.strip(dash[0])}"
        return f"{dash[:40]!r} begins with a dash of printed text, not with hyphens; write {whole[:40]}."
    if command == "explain":
        return _of_a_plan(words)
    if quoted := _in_quotes(first, len(words.split(" "))):
        return f"A value with spaces in it stands in quotes: {quoted}."
    number, chip = str(context.params.get("hardware")), words.removeprefix("x ")
    if number.isdigit() and is_hardware(chip):
        return f"A fleet is one word: {_one_word(f'{number[:12]}x{chip}')}."
    if setting := as_a_setting(first):
        return f"Settings are options here: write {setting}."
    if "on" in sys.argv[2:-1]:
        fleet = [word for word in sys.argv[sys.argv.index("on", 2) + 1 :] if word not in ("a", "an", "the", "one")]
        if command == "compare":
            plans = (
                f"{context.params.get('first')}@{each}"[:80] for each in [*fleet, "H100", "A100"][:3] if each != "and"
            )
            return f"Each is MODEL@FLEET: `mlsysim compare {' '.join([*plans][:2])}`."
        whole = " ".join(fleet)
        return f"The fleet is an option: --on {_one_word(whole if is_hardware(whole) else (fleet or ['H100'])[0])}, with its dashes."
    if command == "compare":
        one, between = (str(context.params.get(name)) for name in ("first", "second"))
        if between.rstrip(".") in ("vs", "versus", "and", "with", "to", "against"):
            chips = " --model Llama3_8B" if is_hardware(one) else ""
            return f"compare takes two plans without {between!r} between them: `mlsysim compare {one[:60]} {words[:60]}{chips}`."
        if " " not in words and is_hardware(between) and is_hardware(words) and not is_hardware(one):
            return f"Each is MODEL@FLEET: `mlsysim compare {one[:60]}@{between[:60]} {one[:60]}@{words[:60]}`."
        return f"{words[:60]!r} is one too many: compare takes two, each MODEL@FLEET; `mlsysim sweep MODEL@FLEET on=A,B,C` takes any number."
    hint = f" (as in `{example}`)" if (example := _example(context)) else ""
    takes = [each for each in context.command.params if each.param_type_name == "argument"]
    spaced = "; a name with a space in it stands in quotes" if takes else ""
    return f"{words[:60]!r} is more than the command takes{hint}{spaced}."


def _one_word(fleet: str) -> str:
    """A fleet as a shell takes it."""
    return f"'{fleet[:60]}'" if " " in fleet else fleet[:60]


def beside(on: str, word: str) -> str:
    """What is said of a word where hardware may stand, beside --on."""
    given = sys.argv[1:]
    before = given[: given.index(word)] if word in given else []
    spaced = len(before) > 1 and before[-2].startswith("--") and not before[-1].startswith("-")
    if on.isdigit():
        return f"A fleet is one word: --on {_one_word(f'{on[:12]}x{word}')}."
    if is_hardware(word):
        return f"Hardware stands after the model or in --on; here it does in both, {word[:60]!r} and {on[:60]!r}."
    if len(before) > 1 and before[-1].startswith("--") and before[-2].startswith("--"):
        return f"{before[-2]} takes a value, and {before[-1]} stands in its place."
    if not (spaced and before[-2] == "--slo") and (setting := as_a_setting(word)):
        return f"Settings are options here: write {setting}."
    what = (
        f"write {before[-2]} '{before[-1]} {word}' in quotes" if spaced else "what has a space in it stands in quotes"
    )
    return f"{word[:60]!r} is more than the command takes beside --on {on[:60]}; {what}."


def _in_quotes(first: str, count: int) -> str:
    """An option with all the words that follow it, of which only one was taken for its value; nothing where they are no such words."""
    place = sys.argv.index(first) if first in sys.argv else 0
    flag = next((i for i in range(place - 1, 2, -1) if sys.argv[i].startswith("--")), 0)
    told = sys.argv[flag + 1 : place + count]
    amount = (
        (len(told) > 2 or (len(told) == 2 and not is_hardware(told[1])))
        and re.fullmatch(r"[$€£]?[\d.,]+", told[0])
        and all(re.match(r"\w", each) for each in told)
    )
    return f"{sys.argv[flag]} '{' '.join(told)[:80]}'" if flag and amount else ""


def as_a_setting(word: str) -> str:
    """A key of a plan and its value as an option: ``tp=8`` is ``--tp 8``; nothing of other words."""
    from mlsysim.plans.plan import Plan
    from mlsysim.plans.schema import key_named

    name, mark, value = word.partition("=")
    key = key_named(name, Plan.leaves()) if mark and value and re.fullmatch(r"[a-z]\w*", name) else None
    return f"{option(key)} {value[:60]}" if key is not None else ""


def _of_a_plan(words: str) -> str:
    """How a metric of a plan is explained."""
    first = next((word for word in sys.argv[2:] if not word.startswith("-")), "mfu")
    words = next(
        (words.removeprefix(f"{each} ") for each in ("on", "of", "for") if words.startswith(f"{each} ")), words
    )
    metric, plan = (words, first) if any(sign in first for sign in "@:./") else (first, words)
    if not any(sign in plan for sign in "@:./") and not _names_a_system(plan.split()[-1]):
        return f"A metric of several words stands in quotes: `mlsysim explain '{metric[:40]} {plan[:60]}'`."
    return f"The plan of a metric stands after --of, as in `mlsysim explain {metric[:40]} --of {plan[:60]}`."


def _names_a_system(word: str) -> bool:
    from mlsysim.models.registry import Models

    return Models.has(word) or is_hardware(word)


# --- commands -----------------------------------------------------------------------------------------------------------


def _example(context: Any) -> str:
    """The first example in the help of the command that was asked for."""
    return _of_help(getattr(context, "command", None))


def _of_help(command: Any) -> str:
    told = getattr(command, "help", None) or ""
    return next((line.strip() for line in told.splitlines() if line.strip().startswith("mlsysim ")), "")


def _missing(error: Exception, said: str) -> str:
    context: Any = getattr(error, "ctx", None)
    listed = next((word for word in sys.argv[2:] if word.count("@") > 1 and "," in word), "")
    if getattr(context, "info_name", None) == "compare" and listed:
        return f"Two plans are two words: `mlsysim compare {' '.join(listed.split(','))[:120]}`."
    example = _example(context)
    return f"{said.rstrip('.')}, as in `{example}`." if example else said


def _no_command(error: Exception, said: str) -> str:
    """What is said of a word that is no command, or none of a group such as optimize."""
    context: Any = getattr(error, "ctx", None)
    group, parent = getattr(context, "info_name", None), getattr(context, "parent", None)
    word = said.partition("'")[2].partition("'")[0]
    if group == "labs" and _is_lab(word):
        return f"`mlsysim labs` takes what to do first, as in `mlsysim labs show {word}`."
    own = vocabulary.ASKED.get(word, "")
    if parent is not None and hasattr(context.command, "commands") and not said.endswith("?"):
        if f"`mlsysim {group} " in own:
            return f"`mlsysim {group}` has no {word!r}: {own}."
        example = next(filter(None, (_of_help(each) for each in context.command.commands.values())), "")
        return f"`mlsysim {group}` takes {either(context.command.commands)} first, as in `{example}`."
    if not own and parent is None and _names_a_system(word):
        asked = f"eval Llama3_8B {word[:40]}" if is_hardware(word) else f"eval {word[:40]} H100"
        own = f"a question comes first, as in `mlsysim {asked}`"
    if own:
        return f"No such command {word!r}: {own}."
    return said if said.endswith("?") else f"{said} `mlsysim --help` lists the commands."


def _is_lab(word: str) -> bool:
    from mlsysim.labs.lab import labs

    return word in {name for each in labs() for name in (each.id, str(each.number))}
