"""Requests drawn from an OpenAPI description: what its schemas allow, examples with parts replaced, and what is wrong on purpose.

``requests(description)`` is a hypothesis strategy of :class:`Asked`. Half of the text where a name belongs is a name of the zoo (else
nothing would get past the first check), the rest is whatever a schema allows, near misses, paths and numbers as text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

__all__ = ["Asked", "problems", "requests"]

PATHS = (
    "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "hf://meta-llama/Llama-3.1-8B", "~/.ssh/id_rsa", "..\\..\\boot.ini",
    "C:\\Windows\\win.ini", "/proc/self/environ", "config.json", "model.safetensors", "./", "\x00", "%2e%2e%2fetc%2fpasswd",
)  # fmt: skip
NAMES = {
    "model": ("Llama3_70B", "Llama3_8B", "ResNet50", "DeepSeek_V3", "Mixtral_8x7B", "BERT_Base", "Llama3_405B", "meta-llama/Llama-3.1-8B"),
    "on": ("H100", "8xH100", "512xH100", "64xDGX_H100@NDR", "8xB200 + 8xH100", "Meta_16K", "7xA100", "1000000xH200", "ESP32_S3", "0xH100", "8xMI300X"),
    "name": ("H100", "Meta_16K", "DGX_H100", "Llama3_70B", "Quebec"),
    "fabric": ("InfiniBand_NDR", "NDR", "Ethernet_100G"),
    "region": ("Quebec", "Poland", "US_Avg"),
    "precision": ("bf16", "fp8", "fp16", "int4", "int8", "fp4"),
    "optimizer": ("adam", "adamw", "sgd"),
    "schedule": ("1f1b", "interleaved", "gpipe", "zb"),
    "engine": ("vLLM", "SGLang", "TRT-LLM"),
    "stack": ("bridge", "meta24", "nemo"),
    "metric": ("mfu", "latency", "tco", "performance.mfu", "ttft"),
    "max": ("10 s", "1", "30 ms"),
    "sort": ("memory.bandwidth", "release_year", "name", "memory", "__class__"),
    "type": ("plan", "hardware", "workload", "space.node", "ServingModel", "space.training"),
    "to": ("megatron", "vllm", "slurm", "torchtitan", "kubernetes"),
    "filter": ("vendor=NVIDIA", "memory.capacity>=80GB", "release_year>2020", "memory>3", "__class__=a", "tdp<700 s"),
    "unit": ("s", "GB", "TB/s", "USD", "W", "TFLOPs/s", "day", "kg", "furlong"),
    "constraints": ("batch_size * 2 <= 16", "tp * pp <= 8", "model.layers % pp == 0", "'a' * 9 == 'b'", "bandwidth < 1e12"),
    "subject_to": ("latency_s <= 0.05", "mfu > 0.1", "memory_bytes < 1e11", "wall == 2", "hardware * 2 == 3"),
    "minimize": ("latency_s", "usd_per_mtoken", "step_time_s"),
    "maximize": ("mfu", "tokens_per_second", "throughput_per_s"),
    "pareto": ("latency_s", "usd_per_mtoken", "mfu", "memory_bytes"),
    "rank_by": ("p50", "p90", "p", "p101"),
}  # fmt: skip
NAMES |= {
    "draft_model": NAMES["model"],
    "decode_on": NAMES["on"],
    "cache_precision": NAMES["precision"],
    "regions": NAMES["region"],
}
NAMES |= {"chips": NAMES["on"], "min": NAMES["max"]}
QUANTITIES = (
    "10 s", "500 ms", "30 day", "5 MUSD", "400 Gbps", "80 GiB", "3.35 TB/s", "989 TFLOPs/s", "700 W", "0.1 USD/kWh", "3 USD/h",
    "1e300 s", "0 s", "-1 s", "1e-300 day", "nan s", "inf USD", "1e400 s", "s", "10", "10 s ** 9", "1/0 s", "1 s + 1 s",
)  # fmt: skip

# Axes and fixed inputs of spaces, which the description leaves to `schema`.
AXES: dict[str, tuple[Any, ...]] = {
    "batch_size": ([1, 2, 4], {"powers_of": 2, "to": 64}, {"range": [1, 8]}, {"range": [0, 1e9]}, [-1], ["a"], {"values": [1, 1]}),
    "bandwidth": ({"range": [1, 8], "step": 0.5, "unit": "TB/s"}, ["1 TB/s"], [1e12], {"range": [1, 8], "count": 5, "scale": "log", "unit": "TB/s"}),
    "hardware": ({"zoo": "Hardware.Cloud"}, ["H100", "A100"], {"zoo": "Hardware.Cloud", "where": {"vendor": "NVIDIA"}},
                 {"zoo": "Hardware.H100"}, {"zoo": "Hardware.list"}, {"zoo": "Hardware", "where": {"where": 1}}, ["/etc/passwd"]),
    "grid": ({"zoo": "Grids"}, ["Quebec", "Poland"]),
    "model": (["Llama3_8B", "Llama3_70B"], ["../../etc/passwd"]),
    "tp": ({"powers_of": 2, "to": 8}, {"divisors_of": 64}, {"divisors_of": 999999999989}),
    "pp": ({"powers_of": 2, "to": 8}, [1, 2, 3]),
    "memory": ({"linked": [{"capacity": "80 GB", "bandwidth": "3 TB/s"}, {"capacity": "141 GB", "bandwidth": "4.8 TB/s"}]},),
    "precision": (["fp8", "bf16"],),
    "compression": (["none", "w8a16"],),
    "concurrency": ([1, 8, 64],),
}  # fmt: skip
FIXED: dict[str, tuple[Any, ...]] = {
    "model": ("Llama3_70B", "Llama3_8B", "file:///etc/passwd", {"name": "x"}),
    "hardware": ("H100", "nothing"),
    "phase": ("decode", "prefill"),
    "seq_len": (1, 8192, 10**8, -1),
    "precision": ("fp8", "fp16"),
    "peak": ("1000 TFLOPs/s", 5),
    "bandwidth": ("3 TB/s",),
    "capacity": ("80 GB",),
    "price": ("30000 USD",),
    "efficiency": (0.5, "calibrated", 2),
    "nodes": (8, 512),
    "node": ("DGX_H100", "DGX_A100"),
    "fleet": ("Meta_16K",),
    "fabric": ("InfiniBand_NDR",),
    "tokens": (1e12,),
    "grid": ("Quebec",),
    "batch_size": (256,),
}

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def _weighted(draw: Any, *shares: tuple[int, st.SearchStrategy[Any]]) -> Any:
    """One of several strategies, as often as its share says; ``one_of`` takes equal ones once."""
    place = draw(st.integers(0, sum(share for share, _ in shares) - 1))
    for share, strategy in shares:
        if place < share:
            return draw(strategy)
        place -= share
    raise AssertionError


@dataclass
class Asked:
    """One request."""

    method: str
    url: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    operation: str = ""


def requests(description: dict[str, Any]) -> st.SearchStrategy[Asked]:
    """Requests to every address of a description."""
    return st.one_of(
        *(_to(description, path, method) for path, methods in description["paths"].items() for method in methods)
    )


def _to(description: dict[str, Any], path: str, method: str) -> st.SearchStrategy[Asked]:
    told = description["paths"][path][method]
    if method == "get":
        return _get(path, told)
    content = told["requestBody"]["content"]["application/json"]
    schema, examples = content["schema"], [example["value"] for example in content["examples"].values()]
    reader = _Schemas(description["components"]["schemas"])
    valid = reader.value(schema, "")
    changed = st.one_of(*(_changed(example, reader, schema) for example in examples))
    documents = _weighted((62, changed), (25, valid), (8, _wrong(valid)), (5, _ANYTHING))
    bodies = _weighted((93, documents.map(lambda d: json.dumps(d).encode())), (7, _broken_text(documents)))
    kinds = _weighted((97, st.just("application/json")), (3, st.just("text/plain")))
    return st.builds(
        lambda body, kind: Asked("POST", path, body, {"content-type": kind}, told["operationId"]), bodies, kinds
    )


def _get(path: str, told: dict[str, Any]) -> st.SearchStrategy[Asked]:
    texts = st.sampled_from(
        [*NAMES["name"], *NAMES["type"], "hardware", "models", "systems", "grids", "1", "14", *PATHS]
    )
    pieces = st.one_of(texts, st.text(min_size=1, max_size=12))
    queries = st.lists(
        st.sampled_from(["filter", "filter", "sort", "limit", "offset", "other"]).flatmap(
            lambda key: st.tuples(
                st.just(key),
                st.sampled_from({"filter": NAMES["filter"], "sort": NAMES["sort"]}.get(key, ("0", "1", "5", "x", "-1", "9" * 30)))
                | st.text(max_size=8),
            )
        ),
        max_size=3,
    )  # fmt: skip
    known = told.get("parameters", [])
    inside = [p for p in known if p["in"] == "path"]

    def one(parameter: dict[str, Any]) -> st.SearchStrategy[str]:
        schema = parameter["schema"]
        values = st.sampled_from([str(v) for v in schema["enum"]]) if "enum" in schema else texts
        if schema.get("type") == "integer":
            values = st.integers(0, 30).map(str)
        return _weighted((75, values), (25, pieces))

    def build(chosen: list[str], query: list[tuple[str, str]]) -> Asked:
        url = path
        for parameter, text in zip(inside, chosen, strict=True):
            url = url.replace("{" + parameter["name"] + "}", quote(text, safe=""))
        return Asked("GET", url + ("?" + urlencode(query) if query else ""), operation=told["operationId"])

    return st.builds(build, st.tuples(*(one(p) for p in inside)).map(list), queries if known else st.just([]))


@st.composite
def _some(draw: Any, parts: dict[str, st.SearchStrategy[Any]], needed: list[str], most: int) -> dict[str, Any]:
    """An object with the needed parts and some of the others."""
    free = [key for key in parts if key not in needed]
    chosen = (
        draw(st.lists(st.sampled_from(free), min_size=0 if needed else 1, max_size=most, unique=True)) if free else []
    )
    return {key: draw(parts[key]) for key in [*needed, *chosen]}


class _Schemas:
    """Strategies for the schemas of a description."""

    def __init__(self, components: dict[str, Any]) -> None:
        self.components = components
        self.made: dict[str, st.SearchStrategy[Any]] = {}

    def value(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        if "$ref" in schema:
            target = schema["$ref"].rsplit("/", 1)[-1]
            if target not in self.made:
                self.made[target] = st.deferred(lambda: self.value(self.components[target], name))
            return self.made[target]
        if "x-unit" in schema:
            likely = st.sampled_from([f"{number} {schema['x-unit']}" for number in ("0.5", "10", "3e4", "1e12")])
            free = st.one_of(*(self.value(s, name) for s in schema["anyOf"]))
            return _weighted((75, likely), (15, st.sampled_from(QUANTITIES)), (10, free))
        if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
            others = [part for part in schema["anyOf"] if part != {"type": "null"}]
            return _weighted((92, st.one_of(*(self.value(part, name) for part in others))), (8, st.none()))
        if "anyOf" in schema:
            return st.one_of(*(self.value(s, name) for s in schema["anyOf"]))
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return st.one_of(*(self.value({**schema, "type": kind}, name) for kind in kinds))
        return {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda s, n: st.booleans(),
            "null": lambda s, n: st.none(),
            None: lambda s, n: _ANYTHING,
        }[kinds](schema, name)

    def _object(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        if name in ("axes", "fixed"):
            known = AXES if name == "axes" else FIXED
            return _some({key: st.sampled_from(values) for key, values in known.items()}, [], 5)
        properties = schema.get("properties", {})
        if not properties:
            return st.dictionaries(st.text(max_size=8), _ANYTHING, max_size=2)
        needed = set(schema.get("required", ()))
        parts = {key: self.value(part, key) for key, part in properties.items()}
        return _some(parts, sorted(needed), 4)

    def _array(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", 4), max(4, least))
        return st.lists(self.value(schema.get("items", {}), name), min_size=least, max_size=most)

    def _string(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        free = st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 20), 20))
        if name not in NAMES:
            return free
        likely = st.sampled_from(NAMES[name])
        return _weighted((75, likely), (15, st.sampled_from(PATHS)), (10, free))

    def _integer(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        low, high = int(schema.get("minimum", -(10**6))), int(schema.get("maximum", 10**9))
        small = st.integers(low, min(high, low + 64))
        likely = st.sampled_from([n for n in (1, 2, 4, 8, 64, 256, 1024, 2048, 4096) if low <= n <= high] or [low])
        return _weighted((60, likely), (25, small), (15, st.integers(low, high)))

    def _number(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1e30))
        high = schema.get("maximum", 1e30)
        free = st.floats(low, high, exclude_min="exclusiveMinimum" in schema, allow_nan=False)
        return _weighted((60, st.sampled_from([0.3, 0.5, 1])), (40, free))


def _changed(example: Any, reader: _Schemas, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """An example with one to three of its parts drawn anew from the schema, or another optional part added."""
    places = _places(example, schema, reader)
    if not places:
        return st.just(example)
    drawn = {path: _weighted((94, reader.value(part, path[-1])), (6, _ANYTHING)) for path, part in places}

    @st.composite
    def changes(draw: Any) -> list[tuple[tuple[str, ...], Any]]:
        paths = draw(st.lists(st.sampled_from(sorted(drawn)), min_size=1, max_size=3, unique=True))
        return [(path, draw(drawn[path])) for path in paths]

    def build(changes: list[tuple[tuple[str, ...], Any]]) -> Any:
        document = json.loads(json.dumps(example))
        for path, value in changes:
            inside = document
            for step in path[:-1]:
                inside = inside.setdefault(step, {}) if isinstance(inside, dict) else {}
            if isinstance(inside, dict):
                # A few inputs of a space go beside those that it has, so that some spaces are whole.
                few = path[-1] in ("axes", "fixed") and isinstance(value, dict) and len(value) < 4
                inside[path[-1]] = {**inside.get(path[-1], {}), **value} if few else value
        return document

    return changes().map(build)


def _places(value: Any, schema: dict[str, Any], reader: _Schemas, path: tuple[str, ...] = ()) -> list[Any]:
    """Paths and schemas of all parts that a document with this schema may have."""
    while "$ref" in schema:
        schema = reader.components[schema["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in schema and "x-unit" not in schema:
        found = [_places(value, part, reader, path) for part in schema["anyOf"]]
        return max(found, key=len)
    places = []
    for key, part in schema.get("properties", {}).items():
        places.append(((*path, key), part))
        if len(path) < 2 and key not in ("second",):
            places += _places(None, part, reader, (*path, key))
    return places


def _wrong(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Documents of a schema with a key too many, one too few, or inside something else."""
    return st.one_of(
        st.builds(lambda d, k, v: {**d, k: v} if isinstance(d, dict) else d, valid, st.text(max_size=8), _ANYTHING),
        st.builds(lambda d: dict(list(d.items())[1:]) if isinstance(d, dict) else d, valid),
        valid.map(lambda d: [d]),
    )


def _broken_text(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.binary(max_size=30),
        documents.map(lambda d: json.dumps(d).encode()[:-1]),
        st.sampled_from(
            [
                b"",
                b"{",
                b'{"a":NaN}',
                b'{"model":1e999}',
                b'{"a":1,"a":2}',
                b"[" * 5000,
                b'{"a":"\\ud800"}',
                b"9" * 5000,
            ]
        ),
    )


def problems(asked: Asked, status: int, headers: dict[str, str], body: bytes, description: dict[str, Any]) -> list[str]:
    """What is wrong with an answer."""
    found = []
    documented = _statuses(asked, description)
    if str(status) not in documented:
        found.append(f"status {status} is not documented for {asked.operation}")
    if status == 500:
        found.append("a fault of the server")
    if headers.get("content-type") != "application/json":
        found.append(f"content-type {headers.get('content-type')}")
    try:
        document = json.loads(body, parse_constant=lambda name: found.append(f"the answer holds {name}"))
    except ValueError:
        return [*found, "the answer is no JSON"]
    if not isinstance(document, dict):
        found.append("the answer is no object")
    elif status == 200:
        if "error" in document:
            found.append("an error with status 200")
    else:
        error = document.get("error")
        if set(document) != {"error"} or not isinstance(error, dict) or not {"sentence", "kind"} <= set(error):
            found.append("the error has another shape")
        elif not error["sentence"].strip() or "Traceback" in error["sentence"] or "\n" in error["sentence"]:
            found.append("the error is not one sentence")
    return found


def _statuses(asked: Asked, description: dict[str, Any]) -> set[str]:
    statuses = {
        status
        for methods in description["paths"].values()
        for told in methods.values()
        if told["operationId"] == asked.operation
        for status in told["responses"]
    }
    return statuses | {"404"} if asked.method == "GET" else statuses
