"""What others write down, each format by a few rows as its source writes them."""

from __future__ import annotations

import gzip
import json

import pytest

from mlsysim.errors import InputError
from mlsysim.simulate.requests import Measured, Request
from mlsysim.simulate.traces import read_runs, read_trace

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
AZURE_2024 = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 23:59:59.009930+00:00,2162,5\n2024-05-11 00:00:01.017335+00:00,2399,6\n"
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 27000, "input_length": 600, "output_length": 7, "hash_ids": [0, 9]}\n'
)
OURS = (
    "arrival_s,input_tokens,output_tokens,session,prefix,tenant,priority,adapter\n"
    "0.5,40,5,a,0+1 7,free,2,law\n1.5,40,6,,sys:33,,,\n2.5,100,7,a,,paid,,\n"
)
VLLM = {
    "request_rate": 2.0, "input_lens": [10, 20, 30], "output_lens": [3, 2, 0], "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.03], [0.05], []], "start_times": [100.0, 100.5, 101.0], "errors": ["", "", "timeout"],
}  # fmt: skip
INFERENCE_PERF = [
    {"start_time": 12.0, "end_time": 13.2, "request": '{"max_tokens": 5, "ignore_eos": true}', "error": None,
     "info": {"input_tokens": 591, "output_tokens": 3, "output_token_times": [12.2, 12.5, 13.0]}},
    {"start_time": 11.0, "end_time": 12.0, "request": "", "error": None,
     "info": {"request_metrics": {"text": {"input_tokens": 7}}, "lora_adapter": "law", "response_metrics": {
         "output_tokens": 2, "output_token_times": [11.5, 12.0], "server_usage": {"completion_tokens": 3}}}},
    {"start_time": 13.0, "end_time": 14.0, "request": "", "error": {"error_type": "Timeout"}, "info": {"input_tokens": 1}},
]  # fmt: skip
GUIDELLM_REQUEST = {
    "request_start_time": 50.0, "request_latency": 1.5, "prompt_tokens": 256, "output_tokens": 11,
    "time_to_first_token_ms": 500.0, "inter_token_latency_ms": 100.0, "time_per_output_token_ms": 136.4,
}  # fmt: skip
GUIDELLM = {"benchmarks": [{"requests": {"successful": [GUIDELLM_REQUEST], "incomplete": [{}], "errored": []}}]}


@pytest.fixture
def trace(tmp_path):
    def read(text, packed=False, **options):
        path = tmp_path / "a.txt"
        text = text if isinstance(text, str) else json.dumps(text)
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        return read_trace(path, **options)

    return read


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE_2023, [(0.0, 374, 44), (4.314579, 396, 109)]),
        (AZURE_2024, [(0.0, 2162, 5), (2.007405, 2399, 6)]),
        (BURSTGPT, [(0.0, 472, 18, None, None, "ChatGPT"), (113.0, 417, 276, None, None, "GPT-4")]),
        (MOONCAKE, [(0.0, 1025, 5, None, (0, 1)), (27.0, 600, 7, None, (0,))]),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n\n1.5,4,5\n", [(0.0, 2, 3), (0.5, 4, 5)]),
        ("\ufeffarrival_s,input_tokens,output_tokens\r\n0.25,2,3\r\n", [(0.0, 2, 3)]),
    ],
)
def test_formats_are_known_by_their_content(trace, text, expected, packed):
    assert list(trace(text, packed)) == [Request(*row) for row in expected]


def test_further_columns_of_ours(trace):
    found = trace(OURS)
    first, second, third = found
    assert first == Request(0.0, 40, 5, "a", (0, 1), "free", 2, "law")
    assert len(second.blocks) == 2 and max(second.blocks) < 0
    assert third == Request(2.0, 100, 7, "a", None, "paid", 0, None)
    assert found.block_tokens == 16


def test_the_size_of_a_block_is_found(trace):
    rows = "arrival_s,input_tokens,output_tokens,prefix_blocks\n"
    assert trace(MOONCAKE).block_tokens == 512
    assert trace(rows + "0,2358,531,0+146\n").block_tokens == 16
    assert trace(rows + "0,2358,531,0+146\n", block_tokens=32).block_tokens == 32
    with pytest.raises(InputError, match="do not tell how many tokens one has: no power of two"):
        trace(rows + "0,1000,5,0+9\n1,1000,5,0+99\n")


def test_results_of_vllm(trace):
    found = list(trace(VLLM).measured())
    assert [request for request, _ in found] == [Request(0.0, 10, 3), Request(0.5, 20, 2)]
    assert found[0][1] == pytest.approx((0.1, 0.02, 0.14, None))
    assert trace(VLLM).summary.failed == 1


def test_all_at_once_needs_no_start_times(trace):
    lists = {key: VLLM[key] for key in ("input_lens", "output_lens", "ttfts", "itls")}
    assert [r.arrival for r in trace({**lists, "request_rate": "inf"})] == [0.0, 0.0]
    with pytest.raises(InputError, match="it has no start_times, so when its requests came is not known"):
        trace({**lists, "request_rate": 2.0})


def test_results_of_inference_perf(trace):
    """Sorted by their start; the server's count of tokens, or the number asked for, before the one read from the text."""
    found = list(trace(INFERENCE_PERF).measured())
    assert [request for request, _ in found] == [Request(0.0, 7, 3, adapter="law"), Request(1.0, 591, 5)]
    assert found[0][1] == pytest.approx((0.5, 0.25, 1.0, None))
    assert found[1][1] == pytest.approx((0.2, 0.2, 1.0, None))
    assert trace(INFERENCE_PERF).summary.failed == 1


def test_results_of_guidellm(trace):
    ((request, measured),) = trace(GUIDELLM).measured()
    assert request == Request(0.0, 256, 11) and measured == Measured(0.5, 0.1, 1.5)
    assert trace(GUIDELLM).summary.failed == 1
    two = {"benchmarks": GUIDELLM["benchmarks"] * 2}
    with pytest.raises(InputError, match="has 2 runs; say which: '0', '1'"):
        trace(two)
    assert trace(two, run="1").summary.count == 1


def test_logs_with_clock_times_and_runs(tmp_path):
    """Columns as the measured server's request log has them."""
    path = tmp_path / "requests.csv"
    path.write_text(
        "run,request,arrival_s,input_tokens,output_tokens,scheduled_s,first_token_s,finish_s,tpot_s,itl_p99_s\n"
        "p4,0,0.5,1000,3,0.6,0.7,0.9,0.1,0.2\np8,0,1.0,10,2,1.0,1.5,2.0,0.5,0.5\n"
    )
    runs = read_runs(path)
    assert list(runs) == ["p4", "p8"]
    assert list(read_trace(f"{path}#p8")) == list(read_trace(path, run="p8")) == list(runs["p8"])
    with pytest.raises(InputError, match="has no run 'p9'; it has 'p4', 'p8'"):
        read_trace(f"{path}#p9")
    ((request, measured),) = runs["p4"].measured()
    assert request == Request(0.0, 1000, 3) and measured == pytest.approx((0.2, 0.1, 0.4, 0.1))
    path.write_text(
        "arrival_s,input_tokens,output_tokens,ttft_s,e2e_s,wait_in_queue_s\n0,10,5,0.2,1.0,0.05\n0,10,1,0.2,,\n"
    )
    assert [m for _, m in read_trace(path).measured()] == [
        pytest.approx((0.2, 0.2, 1.0, 0.05)),
        (0.2, None, None, None),
    ]


HEAD = "arrival_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty; expected the columns arrival_s,input_tokens,output_tokens of a CSV"),
        ("\n  \n", "is empty"),
        (HEAD, "has no requests"),
        (HEAD + "0,1\n", "line 2 has 2 cells and the header has 3"),
        (HEAD + "0,5,5\nsoon,1,2\n", "line 3 has 'soon' for arrival_s; expected a date or seconds"),
        (HEAD + "0,many,2\n", "line 2 has 'many' for input_tokens; expected a whole number"),
        (HEAD + "0,5,2.5\n", "line 2 has '2.5' for output_tokens; expected a whole number"),
        (HEAD + "0,5,5\n1,5,0\n", "line 3 has 5 input and 0 output tokens; expected 1 or more of each"),
        (HEAD + "0,-5,5\n", "line 2 has -5 input and 5 output tokens"),
        (
            HEAD + "0,5,5\n2,5,5\n1,5,5\n",
            "line 4 comes at 1 s, before line 3 at 2 s; times must not run backwards: sort the lines by their times.$",
        ),
        (HEAD + "0,5,5\nnan,5,5\n", "line 3 comes at nan s"),
        (
            HEAD + "0,5,5\n1,90,20\n",
            "line 3 has 90 input and 20 output tokens, more than the context of 100; leave it out, or cut its prompt to 80.$",
        ),
        (
            HEAD + "0,5,200\n",
            "line 2 has 5 input and 200 output tokens, more than the context of 100; leave it out.$",
        ),
        ("arival,isl,osl\n0,5,5\n", "has no column with times of arrival: 'arival, isl, osl'; did you mean 'arrival'?"),
        (
            "timestamp,isl,osl\n1700000000000,5,5\n",
            "'1700000000000' for timestamp; expected seconds, or a column timestamp_ms",
        ),
        ("arrival_s,input_tokens\n0,5\n", "line 1 has no column with tokens of answers: 'arrival_s, input_tokens'"),
        (
            "arrival_s,input_tokens,output_tokens,sesion\n",
            "line 1 has a column 'sesion' that is not known; did you mean 'session'",
        ),
        (
            "arrival_s,timestamp,input_tokens,output_tokens\n",
            "line 1 has two columns with the same meaning as 'arrival_s'",
        ),
        (
            "arrival_s,input_tokens,output_tokens,prefix\n0,5,5,abc\n",
            "line 2 has 'abc' for prefix; expected hashes of blocks",
        ),
        ("arrival_s,input_tokens,output_tokens,ttft_s\n0,5,5,late\n", "line 2 has 'late' for ttft; expected seconds"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-45 18:15:46.6,374,44\n",
            "line 2 has '2023-13-45 .* expected a date",
        ),
        (MOONCAKE + '{"timestamp": 1}\n', "line 3 is .* expected JSON with timestamp, input_length"),
        ('{"a": 1}', "is JSON of no known kind \\(a\\)"),
        ("[1, 2]", "is JSON of no known kind"),
        ("{", "is no JSON"),
        (
            json.dumps({"benchmarks": [{"requests": {"successful": [{}]}}]}),
            "request 1 is not as guidellm writes it: KeyError",
        ),
        (json.dumps({**VLLM, "ttfts": [0.1]}), "its lists have .* of different lengths: .* ttfts 1"),
        (HEAD[:-1] + ",priority\n0,5,5,nan\n", "line 2 has 'nan' for priority; expected a whole number"),
        (HEAD[:-1] + ",prefix\n0,5,5,0+99999999999\n", "has '0\\+99999999999' for prefix; expected hashes of blocks"),
        (HEAD[:-1] + ",colour\n0,5,5,red\n", "a column 'colour' that is not known; .*leave it out"),
        (
            "arrival_s,input_tokens,output_tokens\n1e30,5,5\n",
            "'1e30' for arrival_s; expected seconds, or a column arrival_ms",
        ),
        (
            MOONCAKE + '{"timestamp": 3, "input_length": Infinity, "output_length": 5}\n',
            "line 3 is .* expected JSON with",
        ),
        ("[" * 100_000, "is no JSON: maximum recursion depth"),
    ],
)
def test_faults_get_a_sentence_with_the_line(trace, text, sentence):
    with pytest.raises(InputError, match=sentence):
        assert trace(text, context=100).summary


@pytest.mark.parametrize(
    "header",
    [
        "arrival,prompt_tokens,completion_tokens",
        "timestamp,input_length,output_length",
        "Arrival Time,Prompt-Tokens,Generated Tokens",
        "time_s,isl,osl",
        "start_time,num_input_tokens,num_output_tokens",
    ],
)
def test_columns_have_the_names_that_people_give_them(trace, header):
    assert list(trace(f"{header}\n7,40,5\n8.5,30,6\n")) == [Request(0.0, 40, 5), Request(1.5, 30, 6)]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_cells_may_stand_between_other_marks(trace, mark):
    text = "arrival_s,input_tokens,output_tokens\n7,40,5\n8.5,30,6\n".replace(",", mark)
    assert list(trace(text)) == [Request(0.0, 40, 5), Request(1.5, 30, 6)]


def test_times_may_be_milliseconds(trace):
    text = "request_id,timestamp_ms,prompt_tokens,completion_tokens,ttft_ms,latency\na,1700000000000,40,5,250,2\nb,1700000001500,30,6,100,3\n"
    (first, seen), (second, _) = trace(text).measured()
    assert (first.arrival, second.arrival) == (0.0, 1.5)
    assert seen.ttft == pytest.approx(0.25) and seen.e2e == 2.0


def test_bytes_that_are_no_text(tmp_path):
    half = gzip.compress((HEAD + "".join(f"{i},{i + 1},5\n" for i in range(999))).encode())[:-200]
    for content in (
        b"\xff\xfe\x00\x01",
        b"PK\x03\x04\0\0\n\0",
        half,
        b"\x1f\x8bnothing",
        HEAD.encode() + b"1" * 200_000,
    ):
        path = tmp_path / "a"
        path.write_bytes(content)
        with pytest.raises(InputError, match="is no text, or its gzip is damaged"):
            list(read_trace(path))
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path)
