"""Traces are read in full or refused by line: whatever a file holds, nothing is guessed and nothing runs over."""

import json
from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend.simulation import trace
from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.trace import MAX_LINE, read_trace

HEADER = "at_s,num_prompt,num_answer"


def written(folder: Path, content: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(content, "utf-8")
    return path


def test_csv_is_read_in_order_of_time(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER},tenant\n2.5,10,3,\n\n1,20,4,a\n")
    assert read_trace(path) == [Arrival(0.0, 20, 4, tenant="a"), Arrival(1.5, 10, 3)]
    assert [arrival.place for arrival in read_trace(path)] == [f"{path} line 4", f"{path} line 2"]


def test_lines_of_json_are_read(tmp_path: Path) -> None:
    lines = (
        '{"at_s": 0, "num_prompt": 9, "num_answer": 2, "prefix": "system", "num_prefix": 8}\n\n'
        '{"at_s": 1, "num_prompt": 9, "num_answer": 2, "priority": -1, "tenant": null}\n'
    )
    for name in ("trace.jsonl", "trace.json"):
        assert read_trace(written(tmp_path, lines, name)) == [
            Arrival(0.0, 9, 2, prefix="system", num_prefix=8),
            Arrival(1.0, 9, 2, priority=-1),
        ]


def test_times_count_from_the_first_wherever_a_trace_begins(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEADER}\n1700000001.5,5,5\n1700000000,5,5\n")
    assert [arrival.at_s for arrival in read_trace(path)] == [0.0, 1.5]


def test_a_mark_of_the_byte_order_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert len(read_trace(written(tmp_path, f"\ufeff{HEADER}\n1,2,3\n"))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("at_s,num_prompt\n1,2\n", "line 2: .*missing required field `num_answer`"),
        (f"{HEADER},user\n1,2,3,a\n", "line 2: .*unknown field `user`"),
        (f"{HEADER}\n1,2,3\n1,2.5,3\n", "line 3: Expected `int`.*`num_prompt`"),
        (f"{HEADER}\n1,true,3\n", "line 2: Expected `int`.*`num_prompt`"),
        (f"{HEADER}\n1,,3\n", "line 2: .*missing required field `num_prompt`"),
        (f"{HEADER}\nnan,2,3\n", "line 2: Expected `float` >= 0.*`at_s`"),
        (f"{HEADER}\ninf,2,3\n", "line 2: Expected `float` <= .*`at_s`"),
        (f"{HEADER}\n-1,2,3\n", "line 2: Expected `float` >= 0.*`at_s`"),
        (f"{HEADER}\n1700000000000,2,3\n", "line 2: Expected `float` <= 10000000000.*`at_s`"),
        (f"{HEADER}\n1,0,3\n", "line 2: Expected `int` >= 1.*`num_prompt`"),
        (f"{HEADER}\n1,1000000000,3\n", "line 2: Expected `int` <= 10000000.*`num_prompt`"),
        (f"{HEADER}\n1,2,1{'0' * 5000}\n", "line 2: .*`num_answer`"),
        (f"{HEADER},priority\n1,2,3,99999999999\n", "line 2: Expected `int` <= .*`priority`"),
        (f"{HEADER},tenant\n1,2,3,{'x' * 300}\n", "line 2: Expected `str` of length <= 256"),
        (f"{HEADER},num_prefix\n1,3,3,3\n", "line 2: num_prefix must be below num_prompt"),
        (f"{HEADER}\n1,2,3,4\n", "line 2 has more cells than line 1 has names"),
        (f"{HEADER},at_s\n1,2,3,4\n", "line 1 names a column twice"),
        (f"{HEADER}\n1,2,{'3' * 70_000}\n", f"line 2 has more than {MAX_LINE} characters"),
        (f'{HEADER}\n1,2,"{(chr(10) + "3" * 60_000) * 3}"\n', "line 5 is not CSV: field larger"),
        (f"{HEADER}\n", "has no requests"),
        ("", "has no requests"),
    ],
)
def test_a_wrong_line_of_csv_is_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_trace(written(tmp_path, content))


def line(**fields: object) -> str:
    return json.dumps({"at_s": 1, "num_prompt": 2, "num_answer": 3} | fields) + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{\n", "line 1 is not JSON that can be read"),
        ("[1]\n", "line 1: Expected `object`, got `array`"),
        ("[" * 60_000 + "\n", "line 1 is not JSON that can be read"),
        ("[" * 100_000 + "\n", "line 1 has more than"),
        (line() + line(num_prompt=float("inf")), "line 2 is not JSON that can be read"),
        (line(at_s=float("nan")), "line 1 is not JSON that can be read"),
        ('{"at_s": 1, "num_prompt": ' + "9" * 5000 + "}", "line 1 is not JSON that can be read"),
        (line(num_prompt=3.7), "line 1: Expected `int`, got `float` - at `num_prompt`"),
        (line(num_answer=True), "line 1: Expected `int`, got `bool` - at `num_answer`"),
        (line(num_answer="3"), "line 1: Expected `int`, got `str` - at `num_answer`"),
        (line(tenant=["x"]), "line 1: Expected `str`, got `array` - at `tenant`"),
        (line(num_answer=10**12), "line 1: Expected `int` <= .*`num_answer`"),
    ],
)
def test_a_wrong_line_of_json_is_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_trace(written(tmp_path, content, "trace.jsonl"))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"at_s,num_prompt\xff")
    with pytest.raises(UserError, match=r"trace\.csv can't be read: 'utf-8' codec"):
        read_trace(path)
    with pytest.raises(UserError, match=r"none\.csv can't be read"):
        read_trace(tmp_path / "none.csv")


def test_a_trace_that_is_too_long_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MAX_REQUESTS", 3)
    row = "1,2,3\n"
    assert len(read_trace(written(tmp_path, f"{HEADER}\n{row * 3}"))) == 3
    with pytest.raises(UserError, match="more than 3 requests; cut it into parts"):
        read_trace(written(tmp_path, f"{HEADER}\n{row * 4}no line that can be read"))
