"""A workload of your own: retrieval-augmented generation, which needs only ``lower()``.

A query is embedded by an encoder, compared with N stored vectors of dimension d, and answered by a generator that
reads the query together with the passages found. The search compares exhaustively: 2 N d operations a query, and
the whole index is read once for a batch of queries.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

import mlsysim
from mlsysim import ComputationGraph, Models, TransformerWorkload, Workload
from mlsysim.models.types import Operator
from mlsysim.physics.precision import bytes_per_element
from mlsysim.show import banner, info, table


class RetrievalAugmentedWorkload(Workload):
    """An encoder, an index of vectors and a generator."""

    architecture: str = "retrieval_augmented"
    encoder: TransformerWorkload
    generator: TransformerWorkload
    vectors: int = Field(gt=0)
    vector_dim: int = Field(gt=0)
    index_precision: str = "fp16"
    passages: int = Field(default=5, gt=0)
    passage_tokens: int = Field(default=256, gt=0)

    @property
    def derived_parameters(self) -> float:
        return self.encoder.parameter_count + self.generator.parameter_count

    @property
    def index_bytes(self) -> float:
        return self.vectors * self.vector_dim * bytes_per_element(self.index_precision)

    def lower(
        self, phase: str | None = None, *, batch_size: int = 1, query_tokens: int = 32, precision: str = "fp16"
    ) -> ComputationGraph:
        """Embed the queries, search the index, read queries and passages (prefill)."""
        embed = self.encoder.lower(batch_size=batch_size, seq_len=query_tokens, precision=precision)
        search = Operator(
            "vector_search",
            "gemm",
            "search",
            m=batch_size,
            n=self.vectors,
            k=self.vector_dim,
            flops=2 * batch_size * self.vectors * self.vector_dim,
            weight_bytes=self.index_bytes,
            input_bytes=batch_size * self.vector_dim * bytes_per_element(self.index_precision),
            output_bytes=batch_size * self.vectors * bytes_per_element("fp32"),
        )
        prompt = query_tokens + self.passages * self.passage_tokens
        answer = self.generator.lower("prefill", batch_size=batch_size, seq_len=prompt, precision=precision)
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=mlsysim.Q_(self.parameter_count * bytes_per_element(precision) + self.index_bytes, "byte"),
            operators=[*embed.operators, search, *answer.operators],
            phase="prefill",
            batch_size=batch_size,
            tokens=answer.tokens,
            cache_bytes=answer.cache_bytes,
            assumptions={"prompt": f"{prompt} tokens", "search": "exhaustive"},
        )


def main() -> None:
    workload: Any = RetrievalAugmentedWorkload(
        name="RAG: BERT-Base + Llama-3.1-8B",
        encoder=Models.BERT_Base,
        generator=Models.Llama3_8B,
        vectors=10_000_000,
        vector_dim=768,
    )
    graph = workload.lower(batch_size=8)
    banner("Retrieval-augmented generation")
    info(
        workload.name,
        Operations=graph.total_ops.to("TFLOP"),
        Weights_and_index=graph.weight_bytes.to("GB"),
        Bytes_moved=mlsysim.Q_(graph.bytes_moved, "byte").to("GB"),
        Arithmetic_intensity=graph.arithmetic_intensity,
        KV_cache=graph.cache_bytes.to("GB"),
        Prompt=graph.assumptions["prompt"],
    )
    print()
    total = graph.flops
    rows = [
        [layer, mlsysim.Q_(flops, "flop").to("TFLOP"), f"{flops / total:.2%}"]
        for layer, flops in graph.by_layer().items()
    ]
    table(["layer", "operations", "share"], [row for row in rows if row[1].magnitude])


if __name__ == "__main__":
    main()
