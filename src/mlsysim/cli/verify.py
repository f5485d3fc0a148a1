"""``mlsysim verify MODEL``: run a pass with random weights here and put the prediction beside it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mlsysim.cli.output import print_line


def verify(
    model: Annotated[str, typer.Argument(help="a model of the zoo: a dense transformer, a ViT or a CNN")],
    phase: Annotated[str, typer.Option(help="prefill, decode or train")] = "prefill",
    layers: Annotated[int | None, typer.Option(help="layers to build (as many as fit; two on a CPU)")] = None,
    batch: Annotated[int, typer.Option(help="sequences or images")] = 1,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="tokens of a sequence, or of the context")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32")] = None,
    chip: Annotated[str | None, typer.Option(help="the chip to predict for, where it is not recognised")] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu (a GPU where there is one)")] = None,
    fuse: Annotated[bool, typer.Option("--compile", help="fuse elementwise operators with torch.compile")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document and nothing else")] = False,
) -> None:
    """Run a real forward pass, decode step or training step of a random-weight model, beside its prediction."""
    from mlsysim.calibrate.device import Device
    from mlsysim.calibrate.verify import verify as run

    result = run(
        model,
        phase,
        layers=layers,
        batch=batch,
        seq_len=seq_len,
        precision=precision,
        chip=chip,
        device=Device(device),
        fuse=fuse,
    )
    if as_json:
        print(json.dumps(result.to_dict(), indent=1))
        return
    show(result.to_dict())


def show(result: dict[str, Any]) -> None:
    """The answer in a few lines."""
    length = f" x {result['seq_len']}" if result["seq_len"] else ""
    layers = f", {result['layers']} of {result['of_layers']} layers" if result["layers"] else ""
    print_line(
        f"{result['model']} {result['phase']} {result['batch']}{length} {result['precision']}{layers} on {result['device']}"
    )
    how = "captured in a graph" if result["graph"] else "launched operator by operator"
    print_line(f"measured   {1e3 * result['measured_s']:10.4g} ms   {how}")
    extra = ", extrapolating" if result["extrapolating"] else ""
    print_line(
        f"predicted  {1e3 * result['predicted_s']:10.4g} ms   {1e3 * result['low_s']:.4g} to {1e3 * result['high_s']:.4g} ms{extra} "
        f"(profile {result['profile']}, {result['basis']})"
    )
    print_line(f"error      {result['error_pct']:+10.1f} %")
