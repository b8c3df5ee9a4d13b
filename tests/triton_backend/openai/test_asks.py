"""Asks become tensors: what is given is sent, and nothing else."""

from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.making import PROMPT, answer, ask
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.messages import Terms
from triton_backend.openai.asks import Ask, segments_prompt
from triton_backend.request import SamplingParams
from triton_backend.segments import Segment, SegmentKind


def test_parameters_travel_in_tensors_of_their_own(face: FakeFace, address: str) -> None:
    answer(
        address,
        ask(
            temperature=0.5,
            top_k=3,
            top_p=0.25,
            seed=-(2**63),
            max_tokens=9,
            min_tokens=2,
            stop=("é", "b"),
            stop_token_ids=(5, 6),
            ignore_eos=True,
            logprobs=1,
            prompt_logprobs=3,
        ),
    )
    (asked,) = face.asked
    assert (asked.id, asked.model) == ("id-0", "tiny")
    assert asked.tensors == {
        "text": [b"Hi"],
        "temperature": [0.5],
        "top_k": [3],
        "top_p": [0.25],
        "seed": [-(2**63)],
        "max_tokens": [9],
        "min_tokens": [2],
        "stop": ["é".encode(), b"b"],
        "stop_token_ids": [5, 6],
        "ignore_eos": [True],
        "logprobs": [1],
        "prompt_logprobs": [3],
        "stream": [True],
    }


def test_what_few_ask_for_travels_in_tensors_too(face: FakeFace, address: str) -> None:
    params = SamplingParams(
        num_choices=1,
        include_stop=True,
        min_p=0.25,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((3, 0.5), (4, -100)),
        constraint=Constraint(ConstraintKind.REGEX, "é+"),
    )
    terms = Terms(cache_salt="mine", priority=-2, bad_words=("no", "é"))
    answer(address, Ask(PROMPT, params, is_streamed=True, terms=terms))
    (asked,) = face.asked
    plain = {"text", "temperature", "top_k", "top_p", "min_tokens", "ignore_eos", "stream"}
    assert {name: asked.tensors[name] for name in asked.tensors.keys() - plain} == {
        "include_stop": [True],
        "min_p": [0.25],
        "repetition_penalty": [1.5],
        "presence_penalty": [0.5],
        "frequency_penalty": [-0.5],
        "logit_bias_ids": [3, 4],
        "logit_bias": [0.5, -100],
        "constraint_kind": [b"regex"],
        "constraint": ["é+".encode()],
        "cache_salt": [b"mine"],
        "priority": [-2],
        "bad_words": [b"no", "é".encode()],
    }


def test_what_is_not_given_is_not_sent(face: FakeFace, address: str) -> None:
    answer(address, ask(is_streamed=False))
    needed = {"text", "temperature", "top_k", "top_p", "min_tokens", "ignore_eos", "stream"}
    assert face.asked[0].tensors.keys() == needed
    assert face.asked[0].tensors["stream"] == [False]


def test_segments_keep_their_kinds() -> None:
    segments = [Segment(SegmentKind.CONTROL, "<s>"), Segment(SegmentKind.TEXT, "é")]
    texts, kinds = segments_prompt(segments)
    assert (texts.name(), texts.shape()) == ("segments", [2])
    assert (kinds.name(), kinds.datatype()) == ("segment_kinds", "BYTES")
