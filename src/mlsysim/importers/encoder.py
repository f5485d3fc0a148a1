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


def _encoder(config: Config, name: str, **own: Any) -> TransformerWorkload:
    """An encoder with the dimensions of the configuration and what its family adds."""
    dimensions: dict[str, Any] = {
        "layers": config.integer(*LAYERS),
        "hidden_dim": config.integer(*WIDTH, "dim"),
        "heads": config.integer(*HEADS),
        "ffn_dim": config.integer("intermediate_size", "hidden_dim"),
        "vocab_size": config.integer(*VOCABULARY),
    }
    return TransformerWorkload(name=name, structure="encoder", **{**dimensions, **own})


def bert(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """BERT, RoBERTa, XLM-R, ELECTRA, MPNet and DistilBERT: the encoder with its pooler, without a task's head."""
    hidden = config.integer(*WIDTH, "dim")
    positions = config.integer("max_position_embeddings", default=512)
    embedding = config.optional("embedding_size")
    distil, electra = model_type == "distilbert", model_type == "electra"
    types = config.integer("type_vocab_size", default=0 if distil else 2, least=0)
    width = embedding or hidden
    # Token types, and the pooler on the first token, which DistilBERT and ELECTRA leave out.
    extra = float(types * width + (0 if distil or electra else hidden * hidden + hidden))
    if model_type == "mpnet":
        extra = hidden * hidden + hidden + 32 * config.integer(*HEADS)
    if width != hidden:
        # A narrow table: its positions are narrow too, and the projection has a bias.
        extra += positions * width + hidden
    workload = _encoder(
        config,
        name,
        **_CLASSIC,
        embedding_dim=embedding if width != hidden else None,
        position_embeddings=positions if width == hidden else 0,
        # RoBERTa numbers positions from the padding's index on.
        max_context=positions - 2 if model_type in ("roberta", "xlm-roberta", "camembert", "mpnet") else positions,
        extra_parameters=extra,
    )
    labels = {"roberta": "RoBERTa", "xlm-roberta": "XLM-R", "distilbert": "DistilBERT", "electra": "ELECTRA"}
    return workload, labels.get(model_type, "MPNet" if model_type == "mpnet" else "BERT")


def deberta(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """DeBERTa v2 and v3: relative positions with a table of their own, no pooler in the encoder itself."""
    hidden = config.integer(*WIDTH)
    buckets = config.integer("position_buckets", default=256, least=-1)
    absolute = config.flag("position_biased_input", default=True)
    positions = config.integer("max_position_embeddings", default=512)
    span = buckets if buckets > 0 else positions
    workload = _encoder(
        config,
        name,
        **_CLASSIC,
        position_embeddings=positions if absolute else 0,
        max_context=positions,
        extra_parameters=float(2 * span * hidden + 2 * hidden),
    )
    config.ignore("relative_attention", "type_vocab_size")
    return workload, "DeBERTa"


def modern_bert(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """ModernBERT: gated, without biases, windows with full attention in every third layer."""
    layers = config.integer(*LAYERS)
    every = config.integer("global_attn_every_n_layers", default=3)
    full = -(-layers // every)  # the first layer is one of them
    spacing = layers // full
    workload = _encoder(
        config,
        name,
        tied_embeddings=True,
        window=config.integer("local_attention", default=128),
        global_every=spacing,
        max_context=config.optional("max_position_embeddings"),
        extra_parameters=float(config.integer(*WIDTH)),
    )
    return workload, "ModernBERT"


def t5(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """T5, mT5, Flan and UL2: no biases, relative positions in the first layer of each half."""
    layers = config.integer("num_layers", "num_hidden_layers")
    heads = config.integer(*HEADS)
    projection = config.text("feed_forward_proj", default="relu")
    buckets = config.integer("relative_attention_num_buckets", default=32)
    decoder_layers = config.integer("num_decoder_layers", default=layers)
    tables = layers + decoder_layers if model_type == "umt5" else 2
    workload = TransformerWorkload(
        name=name,
        structure="encoder-decoder",
        encoder_layers=layers,
        layers=decoder_layers,
        hidden_dim=config.integer("d_model", "hidden_size"),
        heads=heads,
        head_dim=config.integer("d_kv", default=64),
        ffn_dim=config.integer("d_ff", "intermediate_size"),
        gated_ffn=projection.startswith("gated"),
        vocab_size=config.integer(*VOCABULARY),
        tied_embeddings=config.flag("tie_word_embeddings", default=model_type == "t5"),
        max_context=config.integer("n_positions", default=512),
        extra_parameters=float(tables * buckets * heads),
    )
    return workload, "mT5" if model_type != "t5" else "T5"


def bart(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """BART, mBART, Pegasus and Marian: biases throughout, positions in both halves."""
    hidden, heads = config.integer("d_model", "hidden_size"), config.integer("decoder_attention_heads")
    width = config.integer("decoder_ffn_dim")
    if config.integer("encoder_ffn_dim", default=width) != width:
        raise InputError("An encoder and a decoder with feed-forward layers of different widths have no workload type.")
    config.ignore("encoder_attention_heads", "num_hidden_layers")
    learned = model_type in ("bart", "mbart", "plbart")
    positions = config.integer("max_position_embeddings", default=1024)
    workload = TransformerWorkload(
        name=name,
        structure="encoder-decoder",
        encoder_layers=config.integer("encoder_layers"),
        layers=config.integer("decoder_layers"),
        hidden_dim=hidden,
        heads=heads,
        ffn_dim=width,
        vocab_size=config.integer(*VOCABULARY),
        **_CLASSIC,
        position_embeddings=positions + 2 if learned else 0,
        max_context=positions,
        # The encoder's own positions; mBART has a norm behind each embedding beside the one at each end.
        extra_parameters=float((positions + 2) * hidden if learned else 0)
        + (4 * hidden if model_type == "mbart" else 0),
    )
    return workload, {"bart": "BART", "mbart": "mBART", "pegasus": "Pegasus", "marian": "Marian"}.get(
        model_type, "BART"
    )


def whisper(config: Config, model_type: str, name: str, warnings: list[str]) -> Reading:
    """Whisper: keys without bias, the encoder's positions kept as a table of the checkpoint."""
    hidden, heads = config.integer("d_model"), config.integer("decoder_attention_heads")
    encoder, layers = config.integer("encoder_layers"), config.integer("decoder_layers")
    config.ignore("encoder_attention_heads", "encoder_ffn_dim", "num_hidden_layers")
    sources = config.integer("max_source_positions", default=1500)
    fields: dict[str, Any] = {
        "name": name,
        "encoder_layers": encoder,
        "layers": layers,
        "hidden_dim": hidden,
        "heads": heads,
        "ffn_dim": config.integer("decoder_ffn_dim"),
        "vocab_size": config.integer(*VOCABULARY),
        **_CLASSIC,
        "position_embeddings": config.integer("max_target_positions", default=448),
        "max_context": config.integer("max_target_positions", default=448),
        "encoder_positions": sources,
        "mel_bins": config.integer("num_mel_bins", default=80),
    }
    keys_without_bias = (encoder + 2 * layers) * hidden
    fields["extra_parameters"] = max(float(sources * hidden - keys_without_bias), 0.0)
    return SpeechWorkload(**fields), "Whisper"


ENCODERS: dict[str, Callable[[Config, str, str, list[str]], Reading]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet", "distilbert"), bert),
    "deberta-v2": deberta,
    "modernbert": modern_bert,
    **dict.fromkeys(("t5", "mt5", "umt5"), t5),
    **dict.fromkeys(("bart", "mbart", "plbart", "pegasus", "marian"), bart),
    "whisper": whisper,
}
