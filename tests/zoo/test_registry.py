"""Registries: names, aliases, users' own entries, sorting, filters and display."""

from __future__ import annotations

import html
import pickle
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import DataWarning, InputError, UnknownNameError, ZooFileError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Facilities, Grids, Prices, Racks
from mlsysim.models.registry import Models
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.units.fields import Bytes, Record
from mlsysim.units.registry import Q_
from mlsysim.zoo.provenance import Metadata
from mlsysim.zoo.registry import Registry, has_sources, provenance, run_checks

SHIPPED = {
    "Hardware": Hardware,
    "Models": Models,
    "Nodes": Nodes,
    "Fabrics": Fabrics,
    "Clusters": Clusters,
    "Grids": Grids,
    "Facilities": Facilities,
    "Racks": Racks,
    "Prices": Prices,
}
EVERY = pytest.mark.parametrize("registry", SHIPPED.values(), ids=SHIPPED)


class Box(Record):
    name: str
    size: Bytes | None = None
    colour: str | None = None
    metadata: Metadata = Metadata()


def build_box(key, table):
    table = dict(table)
    metadata = provenance(key, table)
    table.pop("namespace", None)
    return Box(metadata=metadata, **table)


def make_registry() -> Registry:
    """A registry without shipped files, so that each test has its own entries."""
    columns = {"size": "size", "colour": "colour"}
    return Registry("Boxes", "box", Box, columns, build_box, names=(), namespaces=("Big", "Small"))


@pytest.fixture
def boxes():
    registry = make_registry()
    registry.add(Box(name="Alpha", size="900 MB", colour="red"), key="Alpha", namespace="Small", aliases=("A-1",))
    registry.add(Box(name="Beta", size="1 GiB", colour="red"), key="Beta", namespace="Big")
    registry.add(Box(name="Gamma", colour="blue"), key="Gamma", namespace="Big")
    registry.add(Box(name="Delta", size="1 GB", colour=None), key="Delta")
    return registry


SOURCE = 'source = {title = "t", url = "https://example.org", checked = "2026-01-01", kind = "paper"}\n'


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """Write user files, then point MLSYSIM_ZOO at them."""

    def write(**contents):
        for name, text in contents.items():
            path = tmp_path / f"{name.replace('__', '/')}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
        return tmp_path

    return write


# --- the shipped zoos ---------------------------------------------------------------------------------------------


@EVERY
def test_every_entry_builds_and_has_a_source(registry):
    assert len(registry) == len(registry.keys()) == len(registry.list())
    assert run_checks(registry, [has_sources]) == []
    for entry in registry:
        assert entry.metadata.source_url.startswith(("https://", "http://"))
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", entry.metadata.last_verified)


@EVERY
def test_names_are_unique_over_keys_and_aliases(registry):
    store = registry._store
    claims: dict[str, set[str]] = {}
    for key, piece in store.shipped.items():
        for name in [key, *piece.aliases]:
            claims.setdefault(name, set()).add(key)
    assert {name: keys for name, keys in claims.items() if len(keys) > 1} == {}


@EVERY
def test_keys_of_different_files_do_not_hide_each_other(registry):
    from importlib.resources import files

    from mlsysim.zoo.files import slices

    package, *names = registry._store._place
    counted = [piece.key for name in names for piece in slices(name, files(package).joinpath(name).read_text("utf-8"))]
    assert sorted(counted) == sorted(registry.keys())


@EVERY
def test_every_name_leads_to_its_entry(registry):
    for key, piece in registry._store.shipped.items():
        entry = registry.get(key)
        for name in [key, *piece.aliases]:
            assert registry[name] is entry
            assert name in registry
            assert registry.key_of(name) == key
        assert getattr(registry, key) is entry
        assert entry.metadata.key == key
        assert key.isidentifier()
        assert not hasattr(Registry, key), f"{key} would hide behind a method of the registry"


@EVERY
def test_namespaces_share_out_the_entries(registry):
    spaces = registry._namespaces
    if spaces:
        counted = [key for space in spaces.values() for key in Registry.keys(space)]
        assert sorted(counted) == sorted(registry.keys())


@EVERY
def test_entries_survive_pickling(registry):
    key = registry.keys()[0]
    assert pickle.loads(pickle.dumps(registry[key])) == registry[key]


def test_names_of_the_documents():
    assert Hardware.Cloud.H100 is Hardware.H100 is Hardware["h100"]
    assert Hardware.Cloud.CerebrasCS3 is Hardware.Cloud.Cerebras_CS3 is Hardware.CerebrasCS3
    assert Hardware.Tiny.ESP32_S3.name
    assert Models.Language.Llama3_70B.name == "Llama-3.1-70B"
    assert Models.Llama2_70B is Models["Llama-2-70B"]
    assert Clusters.Frontier_8K.count
    assert (Grids.Quebec.name, Grids.Poland.name) == ("Quebec (Hydro)", Grids.get("poland").name)


def test_wrong_namespace_is_refused():
    with pytest.raises(UnknownNameError, match="There is no hardware named 'ESP32_S3'"):
        Hardware.Cloud.ESP32_S3
    assert "ESP32_S3" in Hardware and "ESP32_S3" not in Hardware.Cloud


@pytest.mark.parametrize(
    ("registry", "wrong", "near"),
    [
        (Hardware, "H10O", "H100"),
        (Hardware, "Clod", "Cloud"),
        (Models, "Llama3_70", "Llama3_70B"),
        (Grids, "Quebeck", "Quebec"),
        (Clusters, "Frontier8", "Frontier_8K"),
    ],
)
def test_unknown_name_suggests_the_nearest_however_it_is_asked(registry, wrong, near):
    for ask in (registry.get, registry.__getitem__, lambda name: getattr(registry, name), registry.key_of):
        with pytest.raises(UnknownNameError, match=f"named '{wrong}'; did you mean") as caught:
            ask(wrong)
        assert near in caught.value.suggestions
        assert isinstance(caught.value, (AttributeError, KeyError))
    assert not hasattr(registry, wrong)
    assert registry.get(wrong, None) is None


@pytest.mark.parametrize("wrong", [None, 5, ["H100"], object()])
def test_what_is_no_name_is_refused(wrong):
    with pytest.raises(UnknownNameError, match="There is no hardware named"):
        Hardware.get(wrong)
    assert wrong not in Hardware


def test_an_entry_passes_through_get():
    chip = Hardware.H100
    assert Hardware.get(chip) is chip


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_either_finds_an_entry_or_raises_the_one_error(name):
    try:
        entry = Hardware.get(name)
    except UnknownNameError:
        assert name not in Hardware
    else:
        assert isinstance(entry, HardwareNode)


# --- names --------------------------------------------------------------------------------------------------------


def test_case_and_separators_are_forgiven_when_unambiguous(boxes):
    assert boxes["alpha"] is boxes.Alpha is boxes["ALPHA"] is boxes["a_1"] is boxes["A 1"]
    boxes.add(Box(name="one"), key="Model_1_3B")
    boxes.add(Box(name="two"), key="Model_13B")
    assert boxes["model-1.3b"].name == "one"
    assert boxes["model 13b"].name == "two"
    boxes.add(Box(name="three"), key="aLPHA")
    assert boxes["Alpha"].name == "Alpha"
    assert "ALPHA" not in boxes


def test_dir_lists_entries_namespaces_and_methods(boxes):
    assert {"Alpha", "Beta", "Gamma", "Delta", "Big", "Small", "list", "get", "add"} <= set(dir(boxes))
    assert "Beta" in dir(boxes.Big) and "Alpha" not in dir(boxes.Big)
    assert "Llama3_70B" in dir(Models.Language)


def test_length_iteration_and_membership(boxes):
    assert len(boxes) == 4 and len(boxes.Big) == 2
    assert [box.name for box in boxes] == ["Alpha", "Beta", "Gamma", "Delta"]
    assert [box.name for box in boxes.Big] == ["Beta", "Gamma"]
    assert "A-1" in boxes and "A-1" in boxes.Small and "A-1" not in boxes.Big


# --- add ----------------------------------------------------------------------------------------------------------


def test_add_gives_the_entry_back_and_counts_at_once(boxes):
    assert "eps" not in boxes
    box = boxes.add(Box(name="Epsilon"), key="Epsilon", aliases=("eps",), namespace="Big")
    assert boxes["eps"] is boxes.Big.Epsilon is boxes.Epsilon is box
    small = boxes.Small.add(Box(name="Zeta"), key="Zeta")
    assert boxes.Small.Zeta is small


def test_add_refuses_other_types_and_bad_keys(boxes):
    with pytest.raises(InputError, match=r"Boxes\.add needs a Box, got HardwareNode"):
        boxes.add(Hardware.H100, key="H100")
    with pytest.raises(InputError, match="the key 'no good' must be a Python identifier"):
        boxes.add(Box(name="x"), key="no good")


def test_an_added_object_takes_the_place_of_a_shipped_one():
    mine = Hardware.H100.model_copy(update={"name": "mine"})
    shipped = Hardware.H100
    try:
        Hardware.add(mine, key="H100", namespace="Cloud")
        assert Hardware.H100 is Hardware.Cloud.H100 is mine
        assert Hardware.keys().count("H100") == 1
    finally:
        Hardware._store.added.pop("H100")
    assert Hardware.H100 is shipped


# --- lists --------------------------------------------------------------------------------------------------------


def test_sorts_quantities_not_magnitudes_with_unknown_last(boxes):
    assert [box.name for box in boxes.list(sort_by="size")] == ["Alpha", "Delta", "Beta", "Gamma"]
    assert [box.name for box in boxes.list(sort_by="size", reverse=True)] == ["Beta", "Delta", "Alpha", "Gamma"]
    assert [box.name for box in boxes.list(sort_by="name")] == ["Alpha", "Beta", "Delta", "Gamma"]


def test_sorts_the_hardware_zoo_by_bandwidth():
    chips = Hardware.list(sort_by="memory.bandwidth")
    bandwidths = [chip.memory.bandwidth.to("byte/s").magnitude for chip in chips]
    assert bandwidths == sorted(bandwidths)
    magnitudes = [chip.memory.bandwidth.magnitude for chip in chips]
    assert magnitudes != sorted(magnitudes)
    powers = [chip.tdp for chip in Hardware.list(sort_by="tdp", reverse=True)]
    first_unknown = powers.index(None) if None in powers else len(powers)
    assert all(power is None for power in powers[first_unknown:])


def test_filters(boxes):
    assert [box.name for box in boxes.list(colour="red")] == ["Alpha", "Beta"]
    assert [box.name for box in boxes.filter(lambda box: box.size is not None, colour="red")] == ["Alpha", "Beta"]
    assert [box.name for box in boxes.list(where=lambda box: box.size is None)] == ["Gamma"]
    assert [box.name for box in boxes.list(size="1000 MB")] == ["Delta"]
    assert [box.name for box in boxes.list(size=Q_("1 GiB"))] == ["Beta"]
    assert boxes.list(colour="green") == []
    assert {chip.vendor for chip in Hardware.list(vendor="NVIDIA")} == {"NVIDIA"}
    assert Hardware.H100 in Hardware.list(memory__capacity="80 GiB", sort_by="memory.bandwidth")


def test_unknown_field_suggests_the_nearest(boxes):
    for ask in (lambda: boxes.list(sort_by="sise"), lambda: boxes.list(sise="1 GB")):
        with pytest.raises(UnknownNameError, match="field of Boxes entries named 'sise'; did you mean 'size'"):
            ask()
    with pytest.raises(UnknownNameError, match="did you mean 'bandwidth'"):
        Hardware.list(sort_by="memory.bandwith")


# --- display ------------------------------------------------------------------------------------------------------


def test_repr_is_a_table(boxes):
    assert repr(boxes).splitlines() == [
        "Boxes: 4 entries",
        "       name   size    colour  source",
        "Alpha  Alpha  900 MB  red     -",
        "Beta   Beta   1 GiB   red     -",
        "Gamma  Gamma  -       blue    -",
        "Delta  Delta  1 GB    -       -",
    ]
    assert repr(boxes.Big).startswith("Boxes.Big: 2 entries\n")


def test_html_is_a_table_and_escapes(boxes):
    boxes.add(Box(name="<script>alert(1)</script>"), key="Evil")
    page = boxes._repr_html_()
    assert page.startswith("<table><caption>Boxes</caption>")
    assert page.count("<tr>") == 1 + len(boxes)
    assert "<td>1 GiB</td>" in page
    assert "<script>" not in page and html.escape("<script>") in page


@EVERY
def test_every_registry_displays(registry):
    text = repr(registry)
    assert text.splitlines()[0].endswith(f"{len(registry)} entries")
    assert len(text.splitlines()) == len(registry) + 2
    assert registry._repr_html_().count("<tr>") == len(registry) + 1


# --- users' own files ---------------------------------------------------------------------------------------------


def test_user_entries_load_from_files_and_folders(zoo):
    boxes = make_registry()
    assert boxes.keys() == []
    zoo(
        boxes=f'[Mine]\nname = "mine"\nnamespace = "Big"\naliases = ["my box"]\nsize = "2 GB"\n{SOURCE}',
        boxes_more=f'[More]\nname = "more"\n{SOURCE}',
        boxes__inside=f'[Inside]\nname = "inside"\n{SOURCE}',
        other=f'[Other]\nname = "other"\n{SOURCE}',
    )
    assert sorted(boxes.keys()) == ["Inside", "Mine", "More"]
    assert boxes["my box"] is boxes.Big.Mine is boxes["MINE"]
    assert boxes.Mine.size == Q_("2 GB")
    assert boxes.Mine.metadata.source_url == "https://example.org"
    assert boxes.problems == []


def test_user_entries_go_when_the_folder_goes(zoo, monkeypatch):
    boxes = make_registry()
    zoo(boxes=f'[Mine]\nname = "mine"\naliases = ["my box"]\n{SOURCE}')
    assert "my box" in boxes and "m-i-n-e" in boxes
    monkeypatch.delenv("MLSYSIM_ZOO")
    assert boxes.keys() == [] and "my box" not in boxes and "m-i-n-e" not in boxes


BAD_ENTRIES = {
    "no_source": ('[Bad]\nname = "x"\n', "has no 'source'"),
    "unknown_field": (f'[Bad]\nname = "x"\nsise = "1 GB"\n{SOURCE}', "has no field 'sise'; did you mean 'size'"),
    "wrong_unit": (f'[Bad]\nname = "x"\nsize = "1 s"\n{SOURCE}', "expected a size such as '80 GiB'"),
    "bare_number": (f'[Bad]\nname = "x"\nsize = 5\n{SOURCE}', "which has no unit"),
    "tower": (f'[Bad]\nname = "x"\nsize = "9**9**9"\n{SOURCE}', "'size' field"),
    "missing_field": (f"[Bad]\n{SOURCE}", "needs the 'name' field"),
    "not_a_table": ("Bad = 5\n", "expected a table of fields"),
    "array_of_tables": (f'[[Bad]]\nname = "x"\n{SOURCE}', "expected a table of fields"),
    "bad_key": (f'["Bad key"]\nname = "x"\n{SOURCE}', "must be a Python identifier"),
    "aliases_are_text": (f'[Bad]\nname = "x"\naliases = "abc"\n{SOURCE}', "'aliases' must be a list of strings"),
    "aliases_are_numbers": (f'[Bad]\nname = "x"\naliases = [1]\n{SOURCE}', "'aliases' must be a list of strings"),
    "aliases_are_a_number": (f'[Bad]\nname = "x"\naliases = 7\n{SOURCE}', "'aliases' must be a list of strings"),
    "namespace_is_a_number": (f'[Bad]\nname = "x"\nnamespace = 7\n{SOURCE}', "'namespace' must be a string"),
    "source_is_text": ('[Bad]\nname = "x"\nsource = "the web"\n', "'source' must be a table"),
    "source_is_a_list_of_text": ('[Bad]\nname = "x"\nsource = ["the web"]\n', "'source' must be a table"),
    "source_without_url": ('[Bad]\nname = "x"\nsource = {title = "t"}\n', "Source needs the 'url' field"),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_a_bad_entry_is_refused_with_file_entry_and_reason_and_the_rest_loads(zoo, case):
    text, reason = BAD_ENTRIES[case]
    boxes = make_registry()
    folder = zoo(boxes_a=f'{text}\n[Good]\nname = "good"\n{SOURCE}', boxes_b=f'[Fine]\nname = "fine"\n{SOURCE}')
    with pytest.warns(DataWarning, match="refused .*boxes_a.toml, entry 'Bad"):
        keys = boxes.keys()
    assert sorted(keys) == ["Fine", "Good"]
    (problem,) = boxes.problems
    assert isinstance(problem, ZooFileError)
    assert problem.file == str(folder / "boxes_a.toml")
    assert problem.entry.startswith("Bad")
    assert reason in problem.reason and reason in str(problem)


@pytest.mark.parametrize(
    "content",
    [b"[Bad\n", b"[Bad]\nname = \xff\xfe\n", b"[Bad]\na = " + b"[" * 100_000, b"[A]\n[A]\n", b"\x00"],
    ids=["syntax", "encoding", "nesting", "twice", "null"],
)
def test_an_unreadable_file_is_refused_and_the_rest_loads(zoo, content):
    boxes = make_registry()
    folder = zoo(boxes_b=f'[Fine]\nname = "fine"\n{SOURCE}')
    (folder / "boxes_a.toml").write_bytes(content)
    with pytest.warns(DataWarning, match="refused .*boxes_a.toml"):
        assert boxes.keys() == ["Fine"]
    (problem,) = boxes.problems
    assert problem.file == str(folder / "boxes_a.toml") and problem.entry == "" and problem.reason


def test_a_huge_file_and_a_missing_folder_are_refused(zoo, tmp_path, monkeypatch):
    boxes = make_registry()
    folder = zoo(boxes_b=f'[Fine]\nname = "fine"\n{SOURCE}')
    with (folder / "boxes_a.toml").open("wb") as file:
        file.truncate(10_000_001)
    with pytest.warns(DataWarning, match="larger than 10,000,000 bytes"):
        assert boxes.keys() == ["Fine"]
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path / "nowhere"))
    with pytest.warns(DataWarning, match="MLSYSIM_ZOO names a folder that does not exist"):
        assert boxes.keys() == []


def test_a_problem_is_reported_once(zoo):
    boxes = make_registry()
    zoo(boxes="Bad = 5\n")
    with pytest.warns(DataWarning):
        boxes.keys()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        boxes.keys()
        assert len(boxes.problems) == 1


def user_chip(name: str, extra: str = "") -> str:
    return (
        f'[{name}]\nname = "user {name}"\nnamespace = "Cloud"\n{extra}{SOURCE}'
        f'[{name}.compute]\nfp16 = "1 TFLOPs/s"\n[{name}.memory]\ncapacity = "1 GB"\nbandwidth = "1 GB/s"\n'
    )


def test_a_shipped_entry_is_replaced_only_on_request(zoo):
    zoo(hardware=user_chip("H100") + user_chip("My_Chip"))
    with pytest.warns(DataWarning, match="the zoo has an entry of that name already; choose another, or say override"):
        assert Hardware.H100.name != "user H100"
    assert Hardware.Cloud.My_Chip.name == "user My_Chip"
    assert [problem.entry for problem in Hardware.problems] == ["H100"]


def test_override_replaces_a_shipped_entry(zoo, monkeypatch):
    zoo(hardware=user_chip("H100", "override = true\n"))
    assert Hardware.H100.name == Hardware.Cloud.H100.name == "user H100"
    assert Hardware.keys().count("H100") == 1 and Hardware.problems == []
    monkeypatch.delenv("MLSYSIM_ZOO")
    assert Hardware.H100.name != "user H100"


def test_the_same_key_in_two_files_is_refused_the_second_time(zoo):
    boxes = make_registry()
    zoo(boxes_a=f'[Mine]\nname = "first"\n{SOURCE}', boxes_b=f'[Mine]\nname = "second"\n{SOURCE}')
    with pytest.warns(DataWarning, match="boxes_b.toml, entry 'Mine': .*already"):
        assert boxes.Mine.name == "first"


def test_a_user_alias_does_not_take_over_a_shipped_name(zoo):
    zoo(hardware=user_chip("My_Chip", 'aliases = ["H100", "mine"]\n'))
    assert Hardware.get("H100").name != "user My_Chip"
    assert Hardware.mine.name == "user My_Chip"


def test_shipped_entries_that_do_not_build_name_file_and_entry(monkeypatch):
    from mlsysim.zoo.files import Slice

    boxes = make_registry()
    bad = {"Bad": Slice("shipped.toml", "Bad", "[Bad]\n")}
    monkeypatch.setattr(type(boxes._store), "shipped", property(lambda store: bad))
    with pytest.raises(ZooFileError, match=r"shipped\.toml, entry 'Bad': .*has no 'source'") as caught:
        boxes.Bad
    assert (caught.value.file, caught.value.entry) == ("shipped.toml", "Bad")


def test_problems_print_registry_entry_and_check(boxes):
    (first, *rest) = run_checks(boxes, [has_sources])
    assert str(first) == "Boxes Alpha: has no source (has_sources)"
    assert len(rest) == 3
    assert run_checks(boxes, [has_sources], keys=["Beta"])[0].key == "Beta"
