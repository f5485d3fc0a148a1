"""Full caches: what the closed form says of a server that puts requests back and reads them again, beside the play of each of them.

Both have the same steps; more requests come than are answered, and what the play wrote after it has filled is counted, so that neither
filling nor emptying is.
"""

import pytest

from mlsysim.plans.resolve import find_model
from mlsysim.simulate.replicas import kind_of
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.traffic import Fixed, Load, Spread
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

ANY_RATE = 1e6


def closed(model, on, prompt, answer, cv=None, **more):
    fleet = parse_fleet(on).one
    asked = {"seq_len": prompt, "output_len": answer, "tp_size": fleet.total_accelerators, "length_cv": cv}
    asked |= {"efficiency": "calibrated", "arrival_rate": ANY_RATE, **more}
    chosen = {name: value for name, value in asked.items() if value is not None}
    return ServingModel().solve(find_model(model), fleet.node.accelerator, **chosen)


def played(result, prompt, answer, cv, rate, warm=4, turns=12):
    """Answers a second that a replica writes, by their tokens, and tokens that it reads again for each, after some answers' time."""
    machine, traffic = result.named("machine"), result.named("clients")
    replica = kind_of(machine, traffic, Settings(seed=1)).replica(lambda live: None, None, 1.0)
    span = result.active_requests / rate * (2 if cv else 1.3)
    lengths = [Fixed(n) if cv is None else Spread(float(n), cv) for n in (prompt, answer)]
    asked = 1.5 * float(result.named("looped").most)
    replica.come(list(Load(asked, *lengths, 1.0, count=int(asked * turns * span)).requests(1)))
    seen = []
    for end in (warm * span, turns * span):
        replica.advance(end)
        seen.append((replica.time, replica.spent.wrote / answer, replica.spent.repeated))
    seconds, wrote, again = (last - first for first, last in zip(*seen, strict=True))
    return wrote / seconds, again / wrote


@pytest.mark.parametrize("cv", [None, 1.0])
@pytest.mark.parametrize(
    ("model", "on", "prompt", "answer", "more"),
    [
        ("Llama3_8B", "1xH100", 2000, 2000, {}),
        ("Llama3_8B", "1xH100", 8000, 1000, {}),
        ("Llama3_8B", "1xL40S", 2000, 300, {}),
        ("Llama3_70B", "4xH100", 2000, 300, {}),
        ("Llama3_70B", "2xH200", 8000, 1000, {}),
        ("Llama3_70B", "4xH100", 500, 4000, {}),
        ("DeepSeekV3", "8xH200", 8000, 1000, {"precision": "fp8"}),
    ],
)
def test_full_caches_answer_as_many_in_closed_form_as_one_by_one(model, on, prompt, answer, more, cv):
    result = closed(model, on, prompt, answer, cv, **more)
    rate = to_si(result.output_tokens_per_sec, "1/s") / answer
    theirs, again = played(result, prompt, answer, cv, rate)
    assert again > 0.1 * answer, "caches are full"
    if answer > 4 * prompt:
        # What is put back is as long as the answers.
        assert again == pytest.approx(answer, rel=0.1)
    # Of spread lengths some hundred answers have a mean that is a few percent off.
    assert rate == pytest.approx(theirs, rel=0.05 if cv is None else 0.08)


def test_whoever_lets_in_fewer_at_a_time_reads_nothing_again_and_answers_more():
    result = closed("Llama3_70B", "4xH100", 500, 4000)
    rate = to_si(result.output_tokens_per_sec, "1/s") / 4000
    fewer = closed("Llama3_70B", "4xH100", 500, 4000, max_num_seqs=150)
    assert to_si(fewer.output_tokens_per_sec, "1/s") / 4000 > 1.15 * rate
    assert result.named("looped").most > 1.15 * rate


def test_an_engine_that_reserves_whole_answers_puts_nothing_back():
    result = closed("Llama3_70B", "4xH100", 500, 4000, engine="TensorRT-LLM")
    looped = result.named("looped")
    assert looped.most == pytest.approx(looped.requests)
