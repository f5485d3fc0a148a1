"""Diffusion models: one network evaluated once (or twice, with guidance) for each denoising step.

``lower()`` is one denoiser pass; ``generate`` phase repeats it for all steps. The text encoder and the image decoder
run once per image; at 20 to 50 steps they are 2 to 10 % of the operations of the U-Net models and are left out of the
operators, but their parameters count towards memory where they are stated.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from mlsysim.models.base import choose_phase
from mlsysim.models.graph import ComputationGraph
from mlsysim.models.vision import RowWorkload
from mlsysim.units.fields import Count


class DiffusionWorkload(RowWorkload):
    """A denoiser (U-Net or transformer) given by layer rows; ``inference_flops`` is that of one denoiser pass."""

    denoises: ClassVar[bool] = True
    architecture: str = "diffusion"
    layers: int | None = Field(default=None, gt=0)
    denoising_steps: int = Field(default=50, gt=0)
    guidance_passes: int = Field(default=1, ge=1, le=3)
    resolution: int | None = Field(default=None, gt=0)
    latent_shape: tuple[int, ...] | None = None
    text_encoder_parameters: Count | None = None
    vae_parameters: Count | None = None

    @property
    def passes_per_image(self) -> int:
        """Denoiser passes for one image."""
        return self.denoising_steps * self.guidance_passes

    @property
    def pipeline_parameter_count(self) -> float:
        """Parameters of the denoiser with its text encoder and image decoder, where they are stated."""
        extra = [q.to("count").magnitude for q in (self.text_encoder_parameters, self.vae_parameters) if q is not None]
        return self.parameter_count + float(sum(extra))

    def lower(self, phase: str | None = None, **options: Any) -> ComputationGraph:
        """One denoiser pass (``inference``), a whole image (``generate``) or a training step (``training``)."""
        phase = choose_phase(phase, "inference", ("inference", "generate", "training"), self.name)
        graph = super().lower("training" if phase == "training" else "inference", **options)
        if phase != "generate":
            return graph
        passes = {"passes": f"{self.denoising_steps} steps x {self.guidance_passes} passes"}
        operators = [op.times(self.passes_per_image) for op in graph.operators]
        whole = {"weight_bytes": graph.weight_bytes, "assumptions": passes}
        return self._graph(operators, phase, graph.batch_size, 0.0, **whole)
