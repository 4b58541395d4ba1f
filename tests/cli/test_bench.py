"""`pome bench`: what it measures, the form of its outputs, sums of profiles, wrong usage, interruption. No time is
expected: only what must hold on any machine."""
import csv
import html.parser
import io
import json
import math
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from conftest import POME, ROOT

SHORT = ["-r", "2", "-n", "3", "--no-limits"]


def bench_json(pome, package, *args):
    done = pome("bench", package, "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json(pome, package):
    d = bench_json(pome, package, "-p", "1,64", "-d", "0,50", "-r", 3, "-n", 4, "--threads", 2)
    assert d["is_complete"] and d["numerics"] == "fast" and d["context"] == 128
    machine = d["machine"]
    assert machine["threads"] == 2 and machine["level"]
    assert len(machine["read_gb_per_s_each"]) == 2 and machine["read_gb_per_s"] == max(machine["read_gb_per_s_each"])
    assert 0.1 < machine["read_gb_per_s"] < 5000 and 0.0005 < machine["int8_tops"] < 1000
    load = d["load"]
    assert load["first_ms"] > 0 and load["later_ms"] > 0 and load["first_token_ms"] > 0 and load["n"] == 3
    assert load["first_cached_share"] is None or 0 <= load["first_cached_share"] <= 1
    assert [row["tokens"] for row in d["prefill"]] == [1, 64]
    assert [(row["at_context"], row["tokens"]) for row in d["decode"]] == [(0, 4), (50, 4)]
    for row in d["prefill"] + d["decode"]:
        rates = [row["tokens"] / s for s in row["seconds"]]
        mean = sum(rates) / 3
        assert row["n"] == len(rates) == 3
        assert math.isclose(row["tokens_per_s"], mean, rel_tol=1e-9)
        assert math.isclose(row["median"], sorted(rates)[1], rel_tol=1e-9)
        assert math.isclose(row["stdev"], math.sqrt(sum((r - mean) ** 2 for r in rates) / 2), rel_tol=1e-6, abs_tol=1e-9)
    for row in d["decode"]:
        read = row["weights_bytes_per_token"] * row["median"]
        assert math.isclose(row["bandwidth_share"], read / machine["read_gb_per_s"] / 1e9, rel_tol=1e-6)
    for row in d["prefill"]:
        computed = row["ops_per_token"] * row["median"]
        assert math.isclose(row["int8_share"], computed / machine["int8_tops"] / 1e12, rel_tol=1e-6)
    memory = d["memory"]
    assert 0 < memory["peak_anon_bytes"] < memory["peak_rss_bytes"] < 1e9
    assert memory["weights_bytes"] == os.path.getsize(package / "Data" / "com.apple.CoreML" / "weights" / "weight.bin")


def test_work_of_a_known_model(pome, package):
    """The package: 4 layers, width 64, grouped heads 4 and 2 of 16, inner width 176, vocabulary 512; int4 in blocks of 32
    but for the down projections (fp16), whose 176 columns no block divides."""
    in_int4 = 4 * (64 * 64 * 2 + 2 * 64 * 32 + 2 * 64 * 176) + 64 * 512
    in_fp16 = 4 * 64 * 176
    d = bench_json(pome, package, "-p", "1,64", "-d", 0, *SHORT)
    row = 64 * 4.5 / 8  # of the embedding
    assert d["decode"][0]["weights_bytes_per_token"] == in_int4 * 4.5 / 8 + in_fp16 * 2 + row
    one, many = (r["ops_per_token"] for r in d["prefill"])
    assert one == 2 * (in_int4 + in_fp16)
    assert many == 2 * (in_int4 + in_fp16) - 2 * 64 * 512 * 63 / 64  # the head is computed for the last row alone


def test_profile_sums_to_the_wall_clock(pome, package):
    d = bench_json(pome, package, "-p", 64, "-d", 10, "--profile", "--no-fuse", "all", *SHORT)
    for row in d["prefill"] + d["decode"]:
        profile = row["profile"]
        steps = sum(step["seconds"] for step in profile["steps"])
        assert math.isclose(steps, profile["passes_s"], rel_tol=1e-6)
        assert 0 < profile["passes_s"] <= profile["wall_s"]
        assert math.isclose(sum(op["seconds"] for op in profile["ops"]), profile["wall_s"], rel_tol=1e-6)
        names = {op["op"] for op in profile["ops"]}
        assert {"linear", "(inputs)", "(outputs)", "(session)"} <= names
        assert profile["passes"] == (1 if row in d["prefill"] else row["tokens"])
        linear = [step for step in profile["steps"] if step["op"] == "linear"]
        assert len(linear) == 29 and all(step["runs"] == profile["passes"] for step in linear)
    assert "profile" not in bench_json(pome, package, "-p", 64, "-d", 10, *SHORT)["prefill"][0]


def test_tables(pome, package):
    done = pome("bench", package, "-p", "1,64", "-d", "0", "--profile", *SHORT)
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"^\| Variant +\| 1st Load Time \| 2nd\+ Load Time \| First Token \| +Tokens/s \| Peak Memory \| +Power \|$",
                     done.stdout, re.M)
    for title in ("prefill 1", "prefill 64", "decode at 0"):
        assert re.search(rf"^\| {title} +\| +[\d.]+ ± [\d.]+ \| +[\d.]+ \| +2 \| +- \|$", done.stdout, re.M), done.stdout
        assert f"profile of {title}, " in done.stdout
    tables = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len({len(line) for line in tables[:3]}) == 1 and len({len(line) for line in tables[3:]}) == 1
    assert re.search(r"^  sum +\d+ +[\d.]+ +(99|100)\.\d%$", done.stdout, re.M)
    assert "first load: " in done.stdout and "memory: peak " in done.stdout


def test_csv(pome, package):
    done = pome("bench", package, "-p", "1,64", "-d", "0,20", "-r", 2, "-n", 3, "--csv")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(r["test"], r["tokens"], r["at_context"]) for r in rows] == [
        ("read", "", ""), ("int8", "", ""), ("load_first", "", ""), ("load_later", "", ""), ("first_token", "", ""),
        ("prefill", "1", "0"), ("prefill", "64", "0"), ("decode", "3", "0"), ("decode", "3", "20"), ("peak_rss", "", ""),
        ("peak_anon", "", "")]
    for r in rows:
        assert None not in r and r["model"] == str(package) and r["numerics"] == "fast"
        assert float(r["mean"]) > 0 and float(r["median"]) > 0 and float(r["stdev"]) >= 0
        assert (r["unit"] == "tokens/s") == (r["test"] in ("prefill", "decode")) == (r["limit_share"] != "")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_profile_page(pome, fails, package, tmp_path):
    path = tmp_path / "profile.html"
    done = pome("bench", package, "-p", "64", "-d", "0", "--profile-html", path, *SHORT)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    page = Page(text)
    tags = [tag for tag, _ in page.seen]
    assert page.open == [] and tags.count("svg") == 2 and tags.count("h2") == 2 and tags.count("rect") > 60
    assert "script" not in tags and "http" not in text and "linear" in text
    for tag, attributes in page.seen:
        if tag == "rect":
            assert 0 <= float(attributes["x"]) and float(attributes["x"]) + float(attributes["width"]) <= 1200.1


def test_profile_page_that_cannot_be_written(pome, fails, package, tmp_path):
    """Said before anything is measured."""
    for path, reason in (("nowhere/p.html", "No such file"), (".", "Is a directory"), ("", "No such file")):
        begin = time.monotonic()
        fails(1, [f"--profile-html {path}: {reason}"], "bench", package, "-p", 128, "--profile-html", path, "-r", 1000)
        assert time.monotonic() - begin < 5
    fails(1, ["/dev/full: No space left"], "bench", package, "-p", 1, "--profile-html", "/dev/full", *SHORT)
    (tmp_path / "old.html").write_text("old")
    fails(1, ["no known contract"], "bench", ROOT / "tests/golden/loader/control_flow.mlpackage", "--profile-html", "old.html", *SHORT)
    fails(1, ["no known contract"], "bench", ROOT / "tests/golden/loader/control_flow.mlpackage", "--profile-html", "new.html", *SHORT)
    assert (tmp_path / "old.html").read_text() == "old" and not (tmp_path / "new.html").exists()


def test_output_that_cannot_be_written(package, environment, tmp_path):
    for form in (["--json"], ["--csv"], ["--profile"]):
        command = [POME, "bench", str(package), "-p", "1", "-d", "0", *form, *SHORT]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
        assert done.returncode == 1 and "cannot write to standard output: No space left on device" in done.stderr
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
        os.close(write)
        assert done.returncode == 1 and "cannot write to standard output: Broken pipe" in done.stderr


@pytest.mark.parametrize("size", [0, 100, 10000])
@pytest.mark.parametrize("part", ["weights/weight.bin", "model.mlmodel"])
def test_truncated_packages(fails, copied, part, size):
    path = copied / "Data" / "com.apple.CoreML" / part
    path.write_bytes(path.read_bytes()[:size])
    said = fails(1, [], "bench", copied, *SHORT)
    assert part.split("/")[-1] in said and len(said.splitlines()) == 1


def test_nothing_to_measure(pome, package):
    """Loading remains."""
    d = bench_json(pome, package, "-p", 0, "-n", 0, "-r", 1, "--no-limits")
    assert d["prefill"] == d["decode"] == [] and d["load"]["n"] == 1
    one = pome("bench", package, "-p", 1, "-d", 0, "--context", 1, "-r", 1, "-n", 5, "--no-limits", "--threads", 1)
    assert one.returncode == 0 and ", 1 thread, " in one.stdout


def test_processors_that_may_be_used(package, environment, tmp_path):
    """As many threads as affinity allows."""
    cpu = min(os.sched_getaffinity(0))
    done = subprocess.run([POME, "bench", str(package), "-p", "1", "-d", "0", "--json", *SHORT], stdout=subprocess.PIPE, text=True,
                          env=environment, timeout=60, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    assert done.returncode == 0 and json.loads(done.stdout)["machine"]["threads"] == 1


@pytest.mark.parametrize("seconds", [0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.5])
def test_interruption_at_any_moment(package, environment, tmp_path, seconds):
    """During the limits, loads, rows: it ends at once, with what there is or with nothing, and by itself."""
    process = subprocess.Popen([POME, "bench", str(package), "-p", "1,100", "-n", "100", "-d", "0", "-r", "500", "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background ignores it
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT) and err == "" and time.monotonic() - begin < 10
    if out:
        assert json.loads(out)["is_complete"] is False


def test_rows_are_cut_to_the_context(pome, package):
    done = pome("bench", package, "-p", "100,128,2048", "-d", "0,124,512", "--json", "-r", 1, "-n", 4, "--no-limits")
    assert "a prompt of 2048 is cut to 128: the context holds 128 tokens" in done.stderr
    assert "decoding at 512 is cut to 124: the context holds 128 tokens" in done.stderr
    d = json.loads(done.stdout)
    assert [row["tokens"] for row in d["prefill"]] == [100, 128] and [row["at_context"] for row in d["decode"]] == [0, 124]
    quiet = pome("bench", package, "-p", 2048, "-d", 0, "-q", *SHORT)
    assert quiet.stderr == ""
    lowered = bench_json(pome, package, "-p", 64, "-d", 0, "--context", 16, "-q", *SHORT)
    assert [row["tokens"] for row in lowered["prefill"]] == [16]


def test_parts_can_be_left_out(pome, package):
    d = bench_json(pome, package, "-p", 0, "-d", 5, *SHORT)
    assert d["prefill"] == [] and len(d["decode"]) == 1 and d["machine"]["read_gb_per_s"] is None
    d = bench_json(pome, package, "-p", 5, "-n", 0, "-r", 1, "--no-limits", "--numerics", "exact")
    assert d["decode"] == [] and len(d["prefill"]) == 1 and d["prefill"][0]["int8_share"] is None and d["numerics"] == "exact"
    assert d["prefill"][0]["stdev"] == 0


def test_keep_cache(pome, package):
    package.joinpath("Manifest.json").read_bytes()
    kept = bench_json(pome, package, "-p", 1, "-n", 0, "-r", 1, "--no-limits", "--keep-cache")
    assert kept["load"]["first_cached_share"] > 0.9  # it was just looked at
    done = pome("bench", package, "-p", 1, "-n", 0, "-r", 1, "--no-limits", "--keep-cache")
    assert "page cache left as it was" in done.stdout


@pytest.mark.parametrize("kind", ["nocache/layer1-logits-fixed64-lut6", "nocache/scores-range-fp32-tied",
                                  "enumerated/stateful-int4", "snake/shift-fp16", "multifunction/int4-block32"])
def test_every_kind_of_package(pome, golden, kind):
    d = bench_json(pome, golden / f"{kind}.mlpackage", "-p", "5", "-d", "7", "-q", *SHORT)
    assert d["prefill"][0]["tokens_per_s"] > 0 and d["decode"][0]["weights_bytes_per_token"] > 0


def test_row_seconds_ends_a_row(pome, package):
    d = bench_json(pome, package, "-p", 1, "-n", 0, "-r", 500, "--row-seconds", 0, "--no-limits")
    assert d["prefill"][0]["n"] == 1 and d["load"]["n"] == 1


def test_wrong_usage(fails, package, golden):
    fails(2, ["too few arguments"], "bench")
    fails(2, ["--prompt-lengths: '1,x' is no list of numbers"], "bench", package, "-p", "1,x")
    fails(2, ["--contexts: '-3' is no list of numbers"], "bench", package, "-d", "-3")
    fails(2, ["--json and --csv exclude each other"], "bench", package, "--json", "--csv")
    fails(2, ["--repetitions: 0 is not in"], "bench", package, "-r", 0)
    fails(1, ["nothing.mlpackage"], "bench", "nothing.mlpackage", *SHORT)
    fails(1, ["fits no known contract"], "bench", golden / "chunks-lut4-split" / "tiny-llama_chunk4.mlpackage", *SHORT)
    fails(1, ["context 200 asked for"], "bench", package, "--context", 200, *SHORT)


def test_interruption_shows_what_was_measured(package, environment, tmp_path):
    """Progress goes to a terminal only; it tells when to interrupt."""
    master, slave = pty.openpty()
    process = subprocess.Popen([POME, "bench", str(package), "-p", "3", "-n", "100", "-d", "0", "-r", "200", "--json",
                                "--no-limits", "--row-seconds", "10000"], stdout=subprocess.PIPE, stderr=slave, text=True, cwd=tmp_path,
                               env=environment)
    os.close(slave)
    seen = b""
    begin = time.monotonic()
    while b"decode at 0  3/" not in seen and time.monotonic() - begin < 100:
        seen += os.read(master, 4096)
    assert b"decode at 0  3/" in seen
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 130
    d = json.loads(out)
    assert d["is_complete"] is False and d["prefill"][0]["n"] == 200 and 2 <= d["decode"][0]["n"] < 200
