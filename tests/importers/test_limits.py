"""Bounded reading."""

from __future__ import annotations

import json
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.importers.limits import existing, load_json, read_bounded, read_text, refuse_pickle, size_in_words


def test_a_file_is_read_up_to_its_limit(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"12345")
    assert read_bounded(file, 5) == b"12345"
    assert read_bounded(file, 100, at_most=2) == b"12"
    with pytest.raises(InputError, match="larger than the 4 bytes"):
        read_bounded(file, 4)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_bounded(tmp_path / "absent", 10)
    with pytest.raises(InputError, match="not a regular file"):
        read_bounded(tmp_path, 10)
    with pytest.raises(InputError, match="cannot be read"):
        existing("a\0b")
    with pytest.raises(InputError, match="A path is text, not int"):
        existing(3)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_does_not_keep_the_reader_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_bounded(tmp_path / "pipe", 10)


def test_text_must_be_utf8(tmp_path):
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert read_text(tmp_path / "bom.txt", 100) == "hello"
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    with pytest.raises(InputError, match="not text in UTF-8"):
        read_text(tmp_path / "latin.txt", 100)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 100_000, "nested more than 64 deep"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested more than 64 deep"),
        ("[NaN]", "not finite"),
        ("[1e999]", "not finite"),
        ("9" * 5000, "too many digits"),
        ("{", "not JSON"),
        ("", "not JSON"),
        (b"\xff\xfe", "not text in UTF-8"),
    ],
)
def test_bad_json_is_one_sentence(text, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        load_json(text)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_json_within_the_limits():
    assert load_json("[" * 64 + "]" * 64)
    assert load_json(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert load_json("[Infinity]", finite=False) == [float("inf")]


@given(st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=20))
def test_json_that_was_written_is_read(value):
    assert load_json(json.dumps(value)) == value


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_refused_by_their_first_bytes(protocol):
    with pytest.raises(InputError, match="can run any code"):
        refuse_pickle("weights", pickle.dumps({"a": 1}, protocol))


def test_pickles_are_refused_by_name_and_as_archives():
    for name in ("pytorch_model.bin", "model.PT", "x.pkl", "x.ckpt"):
        with pytest.raises(InputError, match="not read"):
            refuse_pickle(name, b"")
    with pytest.raises(InputError, match="archive"):
        refuse_pickle("model", b"PK\x03\x04")
    refuse_pickle("config.json", b'{"a": 1}')


def test_sizes_in_words():
    assert [size_in_words(n) for n in (12, 1500, 3e6, 2.5e9)] == ["12 bytes", "1.5 kB", "3 MB", "2.5 GB"]
