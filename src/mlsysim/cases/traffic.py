"""What is asked of replicas: lengths, batches and clients, and how clients ask.

Numbers may be arrays, one value for each of many points.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.dealt import ALONE, Dealt
from mlsysim.timing.engines import Engine
from mlsysim.units.ops import ceil, maximum, minimum, taken
from mlsysim.units.records import dataclass

CLIENT_ROUNDS = 10
"""Requests of each client, as benchmarks have them."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How clients ask and how an engine is set, beside what is asked for; for calibrated engines.

    Lengths are spread evenly between ``shortest`` times the nominal ones and all of them; clients send ``rounds`` requests each. ``length_cv`` instead is the coefficient of variation of the lengths, whose means are the nominal ones. ``sent`` requests come in all at a rate, without end where None. ``slots`` the most requests of a replica at a time, ``drafted`` tokens
    that the model's ``own_heads`` draft, or a draft model does, ``server`` whether there is a front end.
    """

    shortest: float = 1.0
    rounds: int = CLIENT_ROUNDS
    slots: Any = None
    poll_steps: float = 1.0
    wait_steps: float = 0.0
    drafted: Any = 0
    acceptance: Any = None
    own_heads: bool = True
    warm: bool = True
    server: bool = True
    length_cv: float | None = None
    sent: Any = None

    @property
    def cv(self) -> float:
        """Coefficient of variation of the lengths: as given, or of an even spread."""
        return (1 - self.shortest) / (1 + self.shortest) / math.sqrt(3) if self.length_cv is None else self.length_cv

    def mean(self, length: Any) -> Any:
        """The mean of lengths whose nominal one is given."""
        return length if self.shortest == 1 else length * (1 + self.shortest) / 2


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is asked. ``batch`` sequences are answered at once by each of ``replicas``; ``together`` of their prompts are read at
    once (all of a batch unless given, one where clients come by themselves). With ``concurrency``, or a ``rate`` of requests a second that
    come at random, the batch follows from it. ``recall`` seconds bring what is cached from the host.
    ``dealt``: of how many replicas that take turns this is one."""

    prompt: Any
    answer: Any
    batch: Any = 1.0
    concurrency: Any = None
    together: Any = None
    cached: Any = 0
    chunk: Any = None
    drafted: Any = 0
    acceptance: Any = 0.0
    replicas: Any = 1
    prefill_replicas: Any = None
    network: Any = None
    habits: Habits = Habits()
    rate: Any = None
    recall: Any = 0.0
    dealt: Dealt = ALONE

    @property
    def mean_prompt(self) -> Any:
        """Tokens of a prompt on average."""
        return self.habits.mean(self.prompt)

    @property
    def mean_answer(self) -> Any:
        """Tokens of an answer on average."""
        return maximum(self.habits.mean(self.answer), 1.0)

    @property
    def mean_new(self) -> Any:
        """Tokens of a prompt that are not found in the cache, on average."""
        return maximum(self.mean_prompt - self.cached, 1.0)

    @property
    def mean_context(self) -> Any:
        """Tokens before the one that is written, of a request that one finds being answered: long answers are found more often, and
        half done, so that the mean is I + O (1 + cv^2)/2."""
        return self.mean_prompt + self.mean_answer * ((1 + self.habits.cv**2) / 2)

    @property
    def spread_of_contexts(self) -> Any:
        """Squared coefficient of variation of the contexts that one finds: a share of the answer is written, anything between none and all of it."""
        cv2, answer = self.habits.cv**2, self.mean_answer
        found = answer**2 * ((1 + cv2) ** 3 / 3 - ((1 + cv2) / 2) ** 2)
        return (found + cv2 * self.mean_prompt**2) / self.mean_context**2

    def kept(self, engine: Engine | None = None) -> Any:
        """Tokens that a request keeps in the cache when the most do: its whole length, where all begin together or the engine reserves
        it; else, as caches grow block by block, what it has got so far, the last block half empty on average."""
        whole = self.mean_prompt + self.mean_answer
        together = (self.concurrency is None and self.rate is None) or self.habits.rounds == 1
        if together or (engine is not None and engine.reserves):
            return self.length if together else whole
        block = 1 if engine is None else engine.block_tokens
        return minimum(self.mean_context + (block - 1) / 2, whole)

    @property
    def prefills(self) -> Any:
        """Replicas that read prompts."""
        return self.replicas if self.prefill_replicas is None else self.prefill_replicas

    @property
    def length(self) -> Any:
        """Tokens that a sequence holds in the end."""
        return self.prompt + self.answer

    @property
    def new(self) -> Any:
        """Prompt tokens that are not found in the cache; of a wholly cached prompt the last is computed again."""
        return maximum(self.prompt - self.cached, 1)

    @property
    def active(self) -> Any:
        """Requests that are answered at once, over all replicas."""
        held = self.batch * self.replicas
        return held if self.concurrency is None else minimum(held, self.concurrency)

    def admitted(self, memory: DeviceMemory) -> Traffic:
        """The same with the batch that clients make: as many as a replica holds, the others wait."""
        together = self.together
        if self.concurrency is None:
            return replace(self, together=self.batch if together is None else minimum(together, self.batch))
        batch = maximum(minimum(ceil(self.concurrency / self.replicas), memory.sequences), 1.0)
        batch = batch if self.habits.slots is None else minimum(batch, self.habits.slots)
        return replace(self, batch=batch, together=1.0 if together is None else minimum(together, batch))

    def take(self, index: Any) -> Traffic:
        """The traffic of some of many points."""
        return Traffic(**{field.name: taken(getattr(self, field.name), index) for field in fields(self)})
