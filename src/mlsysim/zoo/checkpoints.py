"""What people write for models: Hub ids, checkpoints, files, tags.

    meta-llama/Llama-3.1-8B-FP8      the model, and the number format of the checkpoint
    llama-2-13b.Q4_K_M.gguf          likewise
    llama3.1:8b                      a tag of Ollama
    DeepSeek R1 671B                 a size that the name need not have has to be the model's own
    Qwen2.5-Omni-7B                  the text decoder, where the zoo has no more of it
    LLaMA v3.1 8B, Mixtral v0.1 8x7B  a version in the middle, which the name has without its letter or not at all
    Qwen3-Coder-480B                 a mixture without its active size, where one alone has the rest
    llama-70b, qwen-32b              a family and a size: the model that is published under that name, else the newest generation that has the size

A name is tried as it stands, then without words that leave the layers as they are (those of ``data/labels.toml``), the most specific form first.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from mlsysim.errors import fold
from mlsysim.units.registry import to_si
from mlsysim.zoo.labels import Zoo, words

_SAME_SIZE = 0.06
"""By how much the parameters that a name states may differ from the entry's: they are rounded."""

_NEAR_SIZE = 0.2
"""The same where a family sells a size by its name: Gemma 7B has 8.5."""

_EFFORT = re.compile(
    r"\s*\((?:(?:high|medium|low|minimal|no)(?: (?:reasoning|effort|thinking))?|reasoning|non-thinking)\)$",
    re.IGNORECASE,
)
"""How long a model is asked to think."""

_FAMILY = re.compile(r"([a-z]+(?:[-_ ][a-z]+)*)[-_ ]?(\d+(?:\.\d+)?)b", re.IGNORECASE)
"""A family and a size, without a generation."""


def checkpoint_name(text: str) -> str:
    """The last part of a Hub id, a path or a snapshot in a local cache (models--ORG--NAME/snapshots/HASH)."""
    parts = [part for part in text.replace("\\", "/").split("/") if part]
    cached = next((part for part in parts if part.startswith("models--")), None)
    return cached.split("--")[-1] if cached is not None else parts[-1] if parts else text


@cache
def _ends() -> re.Pattern[str]:
    table = words()["model"]
    plain = "|".join(re.escape(word) for word in (*table["tuned"], *table["formats"]))
    ends = "|".join(table["endings"])
    return re.compile(rf"[-_.\s(\[]+(?:{plain}|i?q\d(?:_\w{{1,2}}){{1,2}}|\d+bit|q\d|{ends})[)\]]*$", re.IGNORECASE)


@cache
def _begins() -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(words()['model']['before'])})[-_\s]+", re.IGNORECASE)


@cache
def _within() -> re.Pattern[str]:
    return re.compile(r"[-_\s](?:instruct|chat|it|base)(?=[-_\s])", re.IGNORECASE)


def _grade(text: str) -> str:
    """A name with the grade of a GGUF format as files have it: llama.cpp prints ``Q4_K - Medium`` for Q4_K_M."""
    return re.sub(r"(?<=_k)\s+-?\s*([sml])(?:mall|edium|arge)\b", r"_\1", text, flags=re.IGNORECASE)


def model_names(text: str) -> list[str]:
    """A checkpoint's name and shorter forms of it, the most specific first.

    >>> model_names("Meta-Llama-3-8B-FP8")
    ['Meta-Llama-3-8B-FP8', 'Meta-Llama-3-8B', 'Llama-3-8B-FP8', 'Llama-3-8B']
    """
    text = _grade(text)
    for rule, meant in words()["model"]["rewritten"].items():
        text = re.sub(rule, meant, text, flags=re.IGNORECASE)
    last = checkpoint_name(text)
    found = [text, last, re.sub(r"[()\[\]]", "", last), _EFFORT.sub("", last)]
    bare = _begins().sub("", last)
    for base in dict.fromkeys((last, bare, _within().sub("", bare))):
        short = base
        while short:
            found.append(short)
            cut = _ends().sub("", short)
            if cut == short:
                break
            short = cut
    return list(dict.fromkeys(name for name in found if name))


def _versions(text: str) -> tuple[str, ...]:
    """A name whose version stands in the middle: without the letter before it, without one below 1, which is a checkpoint's, and without the zero of a first one.

    >>> _versions("LLaMA v3.1 8B")[:2], _versions("Mixtral-v0.1-8x7B")[1], _versions("Llama 3.0 8B")[2]
    (('LLaMA 3.1 8B', 'LLaMA v3.1 8B'), 'Mixtral-8x7B', 'Llama 3 8B')
    """
    plain = re.sub(r"(?<=[-_\s])v(?=\d)", "", text, flags=re.IGNORECASE)
    below = re.sub(r"[-_\s]v0(?:\.\d+)+(?=[-_\s])", "", text, flags=re.IGNORECASE)
    return plain, below, re.sub(r"(?<=[1-9])\.0(?=[-_\s])", "", text)


def towered(text: str) -> bool:
    """Whether a name is of a model that sees or hears: one with a tower before its text decoder.

    >>> towered("Qwen/Qwen2.5-VL-7B-Instruct"), towered("OpenGVLab/InternVL3-8B"), towered("Qwen/Qwen2.5-7B-Instruct")
    (True, True, False)
    """
    table = words()["model"]
    return re.search(f"{table['tower_words']}|{table['tower_names']}", text, re.IGNORECASE) is not None


@lru_cache(maxsize=1024)
def format_named(text: str) -> str | None:
    """The number format that a checkpoint's name states: ``nvfp4``, ``awq``, ``q4_k_m``.

    >>> format_named("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4"), format_named("llama-2-13b.Q4_K_M.gguf"), format_named("Llama-2-7b")
    ('gptq', 'q4_k_m', None)
    """
    name = checkpoint_name(_grade(text)).lower()
    if stored := re.search(r"(?<![a-z\d])(i?q\d(?:_(?:[01k]|nl|xs|xxs|s|m))(?:_x?[sml])?)(?![a-z\d])", name):
        return stored[1]
    if own := re.search(r"(?<![a-z\d.])(\d(?:\.\d+)?)bpw(?![a-z\d])", name):
        return f"{float(own[1]):g}bpw"
    if text.lower().startswith("mlx-community/") and (own := re.search(r"-(3|4|6|8)-?bit(?![a-z\d])", name)):
        return f"mlx{own[1]}"
    plain = "-" + re.sub(r"[-_./\s()\[\]]+", "-", name) + "-"
    return next((held for word, held in words()["model"]["formats"].items() if f"-{word}-" in plain), None)


class Names:
    """Reads names of models: Hub ids, checkpoints, GGUF files."""

    _HUB = re.compile(r"(?:[\w.-]+/)?[^/\\:]+")
    _ADDRESS = re.compile(r"^(?:hf://|(?:https?://)?(?:www\.)?(?:huggingface|hf)\.co/)", re.IGNORECASE)

    _TAG = re.compile(r"^([^:\\]+):([\w.-]+)$")
    """Ollama and llama.cpp write a size or a format behind a colon: llama3.1:8b."""
    _SIZED = re.compile(r"(.+?)[-_\s]*[-_\s](\d+(?:\.\d+)?)b(?:[-_.\s]a\d+(?:\.\d+)?b)?", re.IGNORECASE)

    def __init__(self) -> None:
        self._for: dict[str, str] | None = None
        self._checkpoints: dict[str, str | None] = {}

    def key(self, text: str, zoo: Zoo) -> str | None:
        """The key of the first shorter form that something answers to; paths and addresses are not names, but for the Hub's."""
        text = self._TAG.sub(r"\1-\2", self._ADDRESS.sub("", text))
        if not self._HUB.fullmatch(text) or text.startswith((".", "~")):
            return None
        names = zoo.keys_by_name()
        if names is not self._for:
            # Hub ids of the zoo without who published them, where one model alone is called so.
            self._for, self._checkpoints = names, {}
            for name, key in names.items():
                if "/" in name:
                    last = fold(checkpoint_name(name))
                    self._checkpoints[last] = key if self._checkpoints.get(last, key) == key else None
        known = [zoo.named(name) or self._checkpoints.get(fold(name)) for name in model_names(text)]
        found = next((key for key in known if key is not None), None) or self._sized(text, zoo) or self._mixture(text)
        found = found or next(iter(self.generations(text, zoo)), None)
        others = [re.sub(words()["model"]["tower_words"], "", text, flags=re.IGNORECASE), *_versions(text)]
        return found or next(filter(None, (self.key(other, zoo) for other in others if other != text)), None)

    def _mixture(self, text: str) -> str | None:
        """The key of the only mixture that is called so before its active size."""
        for name in map(fold, model_names(text)):
            called = re.compile(rf"{re.escape(name)}a\d+b") if name.endswith("b") else None
            found = {key for known, key in (self._for or {}).items() if called and called.fullmatch(fold(known))}
            if len(found) == 1:
                return found.pop()
        return None

    def _sized(self, text: str, zoo: Zoo) -> str | None:
        """The key of a name behind which its own size stands, such as DeepSeek R1 671B."""
        for found in filter(None, map(self._SIZED.fullmatch, model_names(text))):
            if key := zoo.named(found[1]):
                held = getattr(zoo.entry(key), "parameters", None)
                if held is not None and abs(float(found[2]) * 1e9 / to_si(held, "count") - 1) < _SAME_SIZE:
                    return key
        return None

    def generations(self, text: str, zoo: Zoo) -> list[str]:
        """The keys of a family's models of a size, the newest generation first, where a name says no generation."""
        short = next(filter(None, map(_FAMILY.fullmatch, model_names(self._TAG.sub(r"\1-\2", text)))), None)
        if short is None:
            return []
        family, size = (
            "[-_ ]?".join(map(re.escape, part)) for part in (re.split("[-_ ]", short[1]), short[2].split("."))
        )
        version = r"(\d+(?:[._]\d+)?)"
        form = re.compile(rf"{family}[-_ ]?(?:v?{version}[-_ ])?{size}b(?:[-_ ]v{version})?", re.IGNORECASE)
        newest: dict[str, tuple[int, ...]] = {}
        for name, key in zoo.keys_by_name().items():
            held = getattr(zoo.entry(key), "parameters", None) if (found := form.fullmatch(name)) else None
            if found and held is not None and abs(to_si(held, "count") / (float(short[2]) * 1e9) - 1) < _NEAR_SIZE:
                said = tuple(int(part) for part in re.split("[._]", found[1] or found[2] or "0"))
                newest[key] = max(said, newest.get(key, (0,)))
        return sorted(newest, key=lambda key: newest[key], reverse=True)

    def why(self, text: str, zoo: Zoo) -> str:
        """Nothing is known of a name that is refused."""
        return ""
