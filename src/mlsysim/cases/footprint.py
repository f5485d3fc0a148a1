"""Energy, carbon and water of computers that draw a power for a time, at a place.

    E_IT = (N (f p + w) + K h) t          N accelerators of p with fans and losses f and network w, K hosts of h
    E = E_IT x PUE
    CO2 = E x CI                                                               (Patterson et al. 2021)
    water = E_IT x WUE

WUE is defined per unit of computing energy (The Green Grid 2011, ISO/IEC 30134-9), so water is not multiplied by PUE. Embodied
carbon is written off in equal parts over the lifetime of the hardware, and kept apart from the carbon of operation. Carbon
intensity is a yearly average, or that of the hours which a run covers (:mod:`mlsysim.cases.hours`). Left out: the marginal plant, and the
water that power stations spend, which may exceed that of the site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum
from mlsysim.units.records import dataclass


@kernel("""
    device: kW [1e-3, 20], devices whole, host: kW [0.1, 20], nodes whole [1, 1e5], factor [1, 2],
    network: kW [1e-3, 1] -> power: kW
""")
def fleet_power(device: Any, devices: Any, host: Any, nodes: Any, factor: Any, network: Any) -> Any:
    """Power of all accelerators, of the fans and losses that follow them, of their network, and of the hosts around them."""
    return (device * factor + network) * devices + host * nodes


@kernel("power: kW [1e-3, 1e6], duration: h [1, 1e5] -> energy: kWh")
def computing_energy(power: Any, duration: Any) -> Any:
    """Energy that the computers take."""
    return power * duration


@kernel("computing: kWh [1, 1e9], pue [1, 3] -> energy: kWh")
def facility_energy(computing: Any, pue: Any) -> Any:
    """Energy that the building takes: computers, cooling, conversion."""
    return computing * pue


@kernel("energy: kWh [1, 1e9], intensity: kgCO2e/kWh [0.01, 1.5] -> carbon: kgCO2e")
def carbon_mass(energy: Any, intensity: Any) -> Any:
    """Carbon emitted to generate an energy."""
    return energy * intensity


@kernel("computing: kWh [1, 1e9], wue: L/kWh [0.01, 5] -> water: L")
def water_volume(computing: Any, wue: Any) -> Any:
    """Water that a site spends on cooling, from the energy of the computers alone."""
    return computing * wue


@kernel("whole: kgCO2e [1, 1e9], duration: year [0.01, 10], lifetime: year [1, 10] -> share: kgCO2e")
def embodied_share(whole: Any, duration: Any, lifetime: Any) -> Any:
    """Part of the carbon embodied in hardware that a run answers for; never more than all of it."""
    return whole * minimum(duration, lifetime) / lifetime


@dataclass(frozen=True, slots=True)
class Site:
    """What a run needs to know about its place. Unknown values are None."""

    name: str
    pue: Any
    wue: Any = None
    carbon: Any = None
    """kgCO2e/kWh"""
    price: Any = None
    """USD/kWh"""
    cited: Mapping[str, str] = field(default_factory=dict)
    """Titles of the sources of these figures, by what equations call them."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """kWh of the computers and of the building, kgCO2e and litres; None where the place does not say."""

    computing: Any
    energy: Any
    carbon: Any
    water: Any


def footprint(computing: Any, site: Site) -> Footprint:
    """What computers that take an energy (kWh) take at a place."""
    energy = facility_energy(computing, site.pue)
    carbon = None if site.carbon is None else carbon_mass(energy, site.carbon)
    water = None if site.wue is None else water_volume(computing, site.wue)
    return Footprint(computing, energy, carbon, water)
