"""`builder simulate`: one command answers, twice the same, and what can't be done is refused before any work."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builder.cli.main import main

SMALL = (
    *("--requests", "60", "--prompt", "lognormal:40:1.5", "--answer", "exponential:8"),
    *("--max-seq-len", "256", "--max-num-seqs", "4", "--max-num-tokens", "64", "--quiet"),
)


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *SMALL, *map(str, arguments)])


def test_one_command_compares_policies_as_load_grows() -> None:
    result = simulate("--policy", "fcfs,srpt", "--load", "0.5,1.2")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    first, header, *rows = result.stdout.splitlines()
    assert first.startswith("capacity ")
    assert header.split()[:4] == ["load", "policy", "req/s", "TTFT"]
    assert [row.split()[:2] for row in rows[:4]] == [
        ["0.5", "fcfs"],
        ["0.5", "srpt"],
        ["1.2", "fcfs"],
        ["1.2", "srpt"],
    ]
    assert [row.partition(":")[0] for row in rows[4:]] == [
        "p95 TTFT at load 0.5",
        "p95 TTFT at load 1.2",
    ]


def test_the_same_options_give_the_same_bytes(tmp_path: Path) -> None:
    results = []
    for name in ("a.json", "b.json"):
        result = simulate("--load", "0.8", "--json", tmp_path / name)
        results.append((result.stdout, (tmp_path / name).read_bytes()))
    assert results[0] == results[1]
    assert simulate("--load", "0.8", "--seed", "1").stdout != results[0][0]


def test_the_json_holds_settings_and_figures(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert simulate("--load", "0.5,1", "--policy", "fair", "--json", path).exit_code == 0
    content = json.loads(path.read_text())
    assert content["settings"]["machine"]["limits"]["max_num_seqs"] == 4
    assert [run["load"] for run in content["runs"]] == [0.5, 1.0]
    slow, fast = content["runs"]
    assert slow["policy"] == "fair"
    assert slow["rate_per_s"] == pytest.approx(content["settings"]["capacity_per_s"] / 2)
    assert slow["num_complete"] == fast["num_complete"] == 54
    assert slow["ttft_s"]["50"] <= slow["ttft_s"]["95"] <= slow["ttft_s"]["99"]
    assert slow["mean_queue_s"] < fast["mean_queue_s"]


def test_a_plot_is_a_picture_and_the_same_one_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a.png", "b.png"):
        assert simulate("--load", "0.5,1", "--plot", tmp_path / name).exit_code == 0
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0].startswith(b"\x89PNG")
    assert pictures[0] == pictures[1]


def test_a_trace_is_played_at_its_own_pace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"{at},20,{2 + at % 3},a" for at in range(10)]
    trace.write_text("\n".join(["at_s,num_prompt,num_answer,tenant", *lines]) + "\n")
    result = simulate("--trace", trace, "--policy", "fcfs", "--skip", "0")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 3
    # Nine gaps of a second.
    assert result.stdout.splitlines()[2].split()[2] == "1"


def test_where_a_trace_begins_changes_nothing(tmp_path: Path) -> None:
    outputs = []
    for name, start in (("a.csv", 0), ("b.csv", 1_700_000_000)):
        rows = [f"{start + 0.25 * n},100,30" for n in range(40)]
        (tmp_path / name).write_text("\n".join(["at_s,num_prompt,num_answer", *rows]))
        options = ("--policy", "fcfs", "--load", "1", "--skip", "0")
        outputs.append(simulate("--trace", tmp_path / name, *options).stdout)
    assert outputs[0] == outputs[1] != ""


def test_a_file_that_can_not_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("builder.cli.simulate.find_capacity", None)
    result = simulate("--json", tmp_path / "out.json")
    assert "out.json can't be written; choose another place" in result.stderr
    assert result.exit_code == 2


def test_fair_shares_serve_the_small_tenant_sooner(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ("--tenants", "4", "--load", "2", "--policy", "fcfs,fair", "--json", path)
    simulate("--requests", "200", *options)
    first_come, fair = (run["ttft_s_by_tenant"] for run in json.loads(path.read_text())["runs"])
    assert sorted(fair) == ["1", "2", "3", "4"]
    assert fair["4"]["95"] < first_come["4"]["95"] / 2
    assert fair["1"]["95"] > fair["4"]["95"]


def test_requests_that_were_refused_are_told(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    simulate("--load", "50", "--policy", "fcfs", "--max-waiting", "5", "--json", path)
    (run,) = json.loads(path.read_text())["runs"]
    assert run["num_refused"] > 20
    assert run["num_complete"] + run["num_refused"] == run["num_requests"]


def test_what_an_engine_takes_is_measured(tiny_artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    result = simulate(
        "--artifact", tiny_artifact, "--threads", "1", "--load", "0.5", "--json", path
    )
    assert result.exit_code == 0, result.output
    machine = json.loads(path.read_text())["settings"]["machine"]
    assert machine["limits"]["max_seq_len"] == 256, "an option goes before the artifact"
    assert sum(machine["cost"].values()) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "fcsf"], "unknown policy 'fcsf'. Did you mean fcfs?"),
        (["--load", "1", "--rate", "2"], "--load and --rate both say"),
        (["--load", "0"], "no list of numbers above 0"),
        (["--load", "1,x"], "no list of numbers above 0"),
        (["--load", "200"], "no list of numbers above 0 and up to 100"),
        (["--rate", "inf"], "no list of numbers above 0"),
        (["--prompt", "normal:3"], "unknown distribution 'normal'"),
        (["--cost", "none.json"], "none.json can't be read"),
        (["--trace", "none.csv"], "none.csv can't be read"),
        (["--threads", "2"], "--target and --threads are about an artifact"),
        (["--artifact", "x", "--cost", "y"], "--artifact measures what --cost would say"),
        (["--json", "none/out.json"], "there is no such folder"),
        (["--json", "."], "--json . is a folder"),
        (["--plot", "none/out.png"], "there is no such folder"),
        (["--load", "nan"], "no list of numbers above 0"),
        (["--rate", "1e300"], "no list of numbers above 0 and up to 1e+06"),
        (["--rate", "1e-20"], "at most 1e+09 s can be simulated"),
        (["--skip", "nan"], "nan is not a number"),
        (["--deadline", "nan"], "nan is not a number"),
        (["--deadline", "inf"], "is not in the range"),
        (["--slo-ttft", "nan"], "nan is not a number"),
        (["--slo-itl", "inf"], "is not in the range"),
        (["--kv-tokens", "1000000000000"], "is not in the range"),
        (["--max-num-seqs", "1000000000"], "is not in the range"),
        (["--prompt", "lognormal:1e308:1e200"], "lognormal needs 2 numbers from"),
        (["--kv-tokens", "16"], "request 1: "),
        (["--plot", "out.gif"], "must end with one of .png, .svg, .pdf"),
        (["--max-chunk-tokens", "0"], "--max-chunk-tokens"),
    ],
)
def test_what_can_not_be_done_is_refused_by_name(arguments: list[str], message: str) -> None:
    result = simulate(*arguments)
    assert message in result.stderr
    assert result.stdout == ""
    assert result.exit_code == 2


def test_a_plot_without_matplotlib_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("builder.cli.simulate.find_capacity", None)
    result = simulate("--plot", "out.png")
    assert result.stderr == (
        "error: --plot needs matplotlib; install forerun[plot], or leave --plot out\n"
    )
    assert result.exit_code == 2


def test_a_request_that_does_not_fit_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("at_s,num_prompt,num_answer\n1,300,4\n2,300,4\n")
    result = simulate("--trace", trace)
    assert "trace.csv line 2: a prompt of 300 tokens and an answer of 4 exceed" in result.stderr
    assert result.exit_code == 2
