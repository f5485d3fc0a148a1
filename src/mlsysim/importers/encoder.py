"""Encoders and encoder-decoders: BERT and its kin, T5, BART, Whisper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.decoder import HEADS, LAYERS, VOCABULARY, WIDTH
from mlsysim.importers.fields import Config
from mlsysim.models.multimodal import SpeechWorkload
from mlsysim.models.transformer import TransformerWorkload

Reading = tuple[TransformerWorkload, str]
_CLASSIC: dict[str, Any] = {"gated_ffn": False, "bias": True, "norm": "layernorm", "tied_embeddings": True}
_LABELS = {
    "roberta": "RoBERTa", "xlm-roberta": "XLM-R", "distilbert": "DistilBERT", "electra": "ELECTRA", "mpnet": "MPNet",
    "mbart": "mBART", "pegasus": "Pegasus", "marian": "Marian",
}  # fmt: skip


def _encoder(config: Config, name: str, **own: Any) -> TransformerWorkload:
    """An encoder with the dimensions of the configuration and what its family adds."""
    dimensions = config.sizes(
        layers=LAYERS,
        hidden_dim=(*WIDTH, "dim"),
        heads=HEADS,
        ffn_dim=("intermediate_size", "hidden_dim"),
        vocab_size=VOCABULARY,
    )
    return TransformerWorkload(name=name, structure="encoder", **dimensions, **own)


def bert(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """BERT, RoBERTa, XLM-R, ELECTRA, MPNet and DistilBERT: the encoder with its pooler, without a task's head."""
    hidden = config.integer(*WIDTH, "dim")
    positions = config.integer("max_position_embeddings", default=512)
    width = config.optional("embedding_size") or hidden
    distil = model_type == "distilbert"
    types = config.integer("type_vocab_size", default=0 if distil else 2, least=0)
    # Token types, and the pooler on the first token, which DistilBERT and ELECTRA leave out.
    extra = float(types * width + (0 if distil or model_type == "electra" else hidden * hidden + hidden))
    if model_type == "mpnet":
        extra = hidden * hidden + hidden + 32 * config.integer(*HEADS)
    narrow = width != hidden
    if narrow:
        # A narrow table: its positions are narrow too, and the projection has a bias.
        extra += positions * width + hidden
    workload = _encoder(
        config,
        name,
        **_CLASSIC,
        embedding_dim=width if narrow else None,
        position_embeddings=0 if narrow else positions,
        # RoBERTa numbers positions from the padding's index on.
        max_context=positions - 2 if model_type in ("roberta", "xlm-roberta", "camembert", "mpnet") else positions,
        extra_parameters=extra,
    )
    return workload, _LABELS.get(model_type, "BERT")


def deberta(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """DeBERTa v2 and v3: relative positions with a table of their own, no pooler in the encoder itself."""
    hidden = config.integer(*WIDTH)
    buckets = config.integer("position_buckets", default=256, least=-1)
    absolute = config.flag("position_biased_input", default=True)
    positions = config.integer("max_position_embeddings", default=512)
    extra = float(2 * (buckets if buckets > 0 else positions) * hidden + 2 * hidden)
    table = positions if absolute else 0
    workload = _encoder(
        config, name, **_CLASSIC, position_embeddings=table, max_context=positions, extra_parameters=extra
    )
    config.ignore("relative_attention", "type_vocab_size")
    return workload, "DeBERTa"


def modern_bert(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """ModernBERT: gated, without biases, windows with full attention in every third layer."""
    layers = config.integer(*LAYERS)
    every = config.integer("global_attn_every_n_layers", default=3)
    full = -(-layers // every)  # the first layer is one of them
    own = config.sizes(window=("local_attention", 128), max_context=("max_position_embeddings", None))
    extra = float(config.integer(*WIDTH))
    workload = _encoder(config, name, tied_embeddings=True, global_every=layers // full, extra_parameters=extra, **own)
    return workload, "ModernBERT"


def t5(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """T5, mT5, Flan and UL2: no biases, relative positions in the first layer of each half."""
    layers = config.integer("num_layers", "num_hidden_layers")
    heads = config.integer(*HEADS)
    projection = config.text("feed_forward_proj", default="relu")
    buckets = config.integer("relative_attention_num_buckets", default=32)
    sizes = config.sizes(
        layers=("num_decoder_layers", layers),
        hidden_dim=("d_model", "hidden_size"),
        head_dim=("d_kv", 64),
        ffn_dim=("d_ff", "intermediate_size"),
        vocab_size=VOCABULARY,
        max_context=("n_positions", 512),
    )
    tables = layers + sizes["layers"] if model_type == "umt5" else 2
    workload = TransformerWorkload(
        name=name,
        structure="encoder-decoder",
        encoder_layers=layers,
        heads=heads,
        gated_ffn=projection.startswith("gated"),
        tied_embeddings=config.flag("tie_word_embeddings", default=model_type == "t5"),
        extra_parameters=float(tables * buckets * heads),
        **sizes,
    )
    return workload, "mT5" if model_type != "t5" else "T5"


def bart(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """BART, mBART, Pegasus and Marian: biases throughout, positions in both halves."""
    sizes = config.sizes(
        hidden_dim=("d_model", "hidden_size"), heads="decoder_attention_heads", ffn_dim="decoder_ffn_dim"
    )
    hidden, width = sizes["hidden_dim"], sizes["ffn_dim"]
    if config.integer("encoder_ffn_dim", default=width) != width:
        raise InputError("An encoder and a decoder with feed-forward layers of different widths have no workload type.")
    config.ignore("encoder_attention_heads", "num_hidden_layers")
    positions = config.integer("max_position_embeddings", default=1024)
    table = positions + 2 if model_type in ("bart", "mbart", "plbart") else 0
    sizes |= config.sizes(encoder_layers="encoder_layers", layers="decoder_layers", vocab_size=VOCABULARY)
    workload = TransformerWorkload(
        name=name,
        structure="encoder-decoder",
        **sizes,
        **_CLASSIC,
        position_embeddings=table,
        max_context=positions,
        # The encoder's own positions; mBART has a norm behind each embedding beside the one at each end.
        extra_parameters=float(table * hidden + (4 * hidden if model_type == "mbart" else 0)),
    )
    return workload, _LABELS.get(model_type, "BART")


def whisper(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Whisper: keys without bias, the encoder's positions kept as a table of the checkpoint."""
    sizes = config.sizes(
        hidden_dim="d_model",
        heads="decoder_attention_heads",
        encoder_layers="encoder_layers",
        layers="decoder_layers",
        encoder_positions=("max_source_positions", 1500),
        ffn_dim="decoder_ffn_dim",
        vocab_size=VOCABULARY,
        position_embeddings=("max_target_positions", 448),
        max_context=("max_target_positions", 448),
        mel_bins=("num_mel_bins", 80),
    )
    config.ignore("encoder_attention_heads", "encoder_ffn_dim", "num_hidden_layers")
    keys_without_bias = sizes["encoder_layers"] + 2 * sizes["layers"]
    extra = float((sizes["encoder_positions"] - keys_without_bias) * sizes["hidden_dim"])
    return SpeechWorkload(name=name, extra_parameters=max(extra, 0.0), **sizes, **_CLASSIC), "Whisper"


ENCODERS: dict[str, Callable[[Config, str, str, list[str]], Reading]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet", "distilbert"), bert),
    "deberta-v2": deberta,
    "modernbert": modern_bert,
    **dict.fromkeys(("t5", "mt5", "umt5"), t5),
    **dict.fromkeys(("bart", "mbart", "plbart", "pegasus", "marian"), bart),
    "whisper": whisper,
}
