"""What a rented accelerator costs an hour: a number, or the listed price of a cloud and a way of renting.

    2.5    "$2.50/h"    "2.5 USD/h"    "aws"    "aws spot"    "spot"    "lambda"    "reserved"    "AWS_p5_48xlarge"

The machines of a cloud (``--on p5.48xlarge``) are rented at what it asks on demand, without being told to.
A cloud without a way means on demand, a way without a cloud the lowest that is listed for the chip. Of two prices of one cloud, way
and size of instance the later one holds. Reserved are committed use and blocks of capacity. A price that nobody lists is not
made up: the error names what is listed for the chip.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from mlsysim.errors import InputError, UnknownNameError, did_you_mean, nearest
from mlsysim.infra.registry import Prices
from mlsysim.infra.types import CloudPrice
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.fields import quantity_from
from mlsysim.units.registry import CURRENCIES, Quantity, number_from, to_si
from mlsysim.zoo.labels import cloud

MOST = 1000.0
"""USD an hour beyond which a number is no rent of one accelerator."""

_HOUR = r"(?:(?:/|per\b|an?\b)\s*(?:(?:gpu|tpu|chip|accelerator|device)\s*[-/ ]?\s*)?(?:h|hr|hour)s?)?"
_PLAIN = re.compile(rf"(?:usd|\$)?\s*([-+]?\d[\d,_]*\.?\d*|\.\d+)\s*(?:usd|dollars?|\$)?\s*{_HOUR}", re.IGNORECASE)
_WAYS = {
    "on-demand": ("on demand", "ondemand", "list"),
    "spot": ("spot", "preemptible", "interruptible"),
    "reserved": ("reserved", "reservation", "committed", "commitment", "capacity block", "block"),
}
_CLOUDS = {
    "AWS": ("amazon", "ec2", "amazon web services"),
    "Google Cloud": ("gcp", "google"),
    "Azure": ("microsoft", "microsoft azure"),
    "Lambda": ("lambda labs",),
}


class Rent(NamedTuple):
    """USD an hour of one accelerator, whose price it is in a few words, and the entry of the list if it is one."""

    price: float
    words: str = ""
    entry: CloudPrice | None = None

    def sentence(self, noun: str = "GPU") -> str:
        """Such as ``$6.88 a GPU-hour (AWS on demand)``."""
        return f"${self.price:,.2f} a {noun}-hour" + (f" ({self.words})" if self.words else "")


def price_text(value: Any) -> Any:
    """A price as a plan keeps it: text with its unit, or the words for a listed one.

    >>> price_text(2.5), price_text("$2.50 per GPU-hour"), price_text("aws spot")
    ('2.5 USD/h', '2.5 USD/h', 'AWS spot')
    """
    if value is None:
        return None
    found = _number(value)
    if found is None:
        if _listed(value) is not None:
            return str(value).strip()
        cloud, way = _asked(str(value))
        return " ".join(filter(None, (cloud, way)))
    if found < 0:
        raise InputError(f"A price is at least 0 USD an hour, got {found:g}.", field="price")
    if found > MOST:
        much = f"{found:,.0f} USD an hour for one accelerator is no rent"
        raise InputError(f"{much}; to say what buying one costs, give unit_cost = '{found:.0f} USD'.", field="price")
    return f"{found!r} USD/h"


def machine_price(on: Any) -> str | None:
    """What a fleet of a cloud's machines is rented at where nothing else is said: on demand, where that is listed for one of their size."""
    found = cloud(on) if isinstance(on, str) else None
    if found is None:
        return None
    one = parse_fleet(found.machine).fleets[0]
    listed = _of_chip(str(one.node.accelerator.metadata.key))
    terms = {(entry.provider, entry.commitment, entry.accelerators) for entry in listed}
    return f"{found.name} on-demand" if (found.name, "on-demand", one.total_accelerators) in terms else None


def rent_of(value: Any, chip: Any, name: str = "") -> Rent:
    """The rent of a chip, by its key in the zoo, at a price in any form; ``name`` is what sentences call it."""
    number = _number(value)
    if number is not None:
        return Rent(number)
    entry = _listed(value)
    if entry is None:
        entry = _lowest(str(value), chip, name or str(chip))
    return _rent(entry)


def lowest_rent(chip: str | None) -> tuple[str, Rent] | None:
    """The cloud that lists the lowest rent of a chip on demand, and that rent."""
    found = next((entry for entry in _of_chip(str(chip)) if entry.commitment == "on-demand"), None)
    return None if found is None else (found.provider, _rent(found))


def _rent(entry: CloudPrice) -> Rent:
    return Rent(to_si(entry.price_per_accelerator, "USD/h"), f"{entry.provider} {_way_of(entry)}", entry)


def _way_of(entry: CloudPrice) -> str:
    return entry.commitment.replace("-", " ")


def _number(value: Any) -> float | None:
    """USD an hour; None for words."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, (Quantity, dict)):
        return float(to_si(quantity_from(value, "USD/h", "2.5 USD/h", "price"), "USD/h"))
    text = str(value).strip()[:80]
    if plain := _PLAIN.fullmatch(text):
        paid = number_from(plain[1])
        if paid is None:
            raise InputError(f"price got {text!r}; write a decimal point, as in 2.5.", field="price")
        return float(paid)
    if text[:1].isdigit() or text[:1] in ("-", "+", ".", "$") or text.upper().startswith(CURRENCIES):
        return float(to_si(quantity_from(text.lstrip("$"), "USD/h", "2.5 USD/h", "price"), "USD/h"))
    return None


def _listed(value: Any) -> CloudPrice | None:
    if isinstance(value, CloudPrice):
        return value
    return Prices.get(value) if isinstance(value, str) and Prices.has(value) else None


def _words(text: str) -> str:
    return " ".join(re.split(r"[\s,_/-]+", text.strip().lower()))


@cache
def _names() -> tuple[dict[str, str], dict[str, str]]:
    """Clouds and ways by every name."""
    clouds = {_words(entry.provider): entry.provider for entry in Prices}
    clouds |= {other: cloud for cloud, others in _CLOUDS.items() for other in others}
    return clouds, {other: way for way, others in _WAYS.items() for other in others}


def _asked(text: str) -> tuple[str, str]:
    """The cloud and the way that words name, each empty where they name none."""
    clouds, ways = _names()
    left, way = f" {_words(text)[:80]} ", ""
    for name in sorted(ways, key=len, reverse=True):
        if f" {name} " in left:
            left, way = left.replace(f" {name} ", " "), ways[name]
            break
    left = left.strip()
    if "accelerators" in left:
        raise InputError(
            f"{text.strip()[:80]!r} says what owning includes and is no rent: that is the cost scope, as in --cost-scope accelerators.",
            field="price",
        )
    if left and left not in clouds:
        known = ", ".join(sorted(set(clouds.values())))
        near = nearest(text.strip(), [*clouds, *_WAYS, *Prices.keys()])
        hint = f"{did_you_mean(near)} A price is" if near else "give"
        words = f"{hint} USD an hour such as 2.5, or a cloud ({known}) or on-demand, spot, reserved, or both"
        raise UnknownNameError(
            f"There is no cloud or price named {text.strip()[:80]!r}; {words}.", name=text[:80], suggestions=near
        )
    if not left and not way:
        raise InputError("A price is USD an hour such as 2.5, or a cloud such as 'aws spot'.", field="price")
    return clouds.get(left, ""), way


@cache
def _of_chip(chip: str) -> tuple[CloudPrice, ...]:
    """The latest listed prices of a chip, lowest first."""
    latest: dict[tuple[str, str, int], CloudPrice] = {}
    for entry in sorted((e for e in Prices if e.accelerator == chip), key=lambda e: e.date):
        latest[entry.provider, entry.commitment, entry.accelerators] = entry
    return tuple(sorted(latest.values(), key=lambda e: to_si(e.price_per_accelerator, "USD/h")))


def _lowest(text: str, chip: Any, name: str) -> CloudPrice:
    cloud, way = _asked(text)
    known = _of_chip(str(chip))
    wanted = {"reserved": ("reserved", "capacity-block")}.get(way, (way,)) if way else ("on-demand",)
    of_cloud = [entry for entry in known if cloud in ("", entry.provider)]
    found = [entry for entry in of_cloud if entry.commitment in wanted] or ([] if way else of_cloud)
    if found:
        return found[0]
    rests: dict[str, str] = {}
    for e in known:
        rests.setdefault(f"{e.provider} {_way_of(e)}", f"${to_si(e.price_per_accelerator, 'USD/h'):.2f}")
    each = ", ".join(f"{whose} {much}" for whose, much in rests.items())
    listed = f"listed are {each}" if each else "no cloud's price of it is"
    what = " ".join(filter(None, (cloud, way.replace("-", " "))))
    raise InputError(
        f"No price of {name} is listed for {what}; {listed}. A number will do too, in USD an hour for one accelerator.",
        field="price",
    )
