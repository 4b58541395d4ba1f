"""bench/compare-llama with a stand-in for llama-bench, and bench/tables: pairs, ratios, failures, the page. The stand-in
gives its speeds from a list, so that the ratios can be checked; the form of its output is that of the real one."""
import csv
import json
import os
import statistics
import subprocess
import sys
import tarfile

import pytest

from conftest import POME, ROOT

STAND_IN = """#!{python}
import json, os, pathlib, signal, sys
log = pathlib.Path(__file__).parent / "calls.jsonl"
with open(log, "a") as f:
    print(json.dumps(sys.argv[1:]), file=f)
n = len(open(log).readlines())
if (pathlib.Path(__file__).parent / "crash").exists():
    os.kill(os.getpid(), signal.SIGILL)
a = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print(json.dumps({{"n_prompt": int(a.get("-p", 0)), "n_gen": int(a.get("-n", 0)), "n_depth": int(a.get("-d", 0)), "avg_ts": 10.0 * n}}))
"""


@pytest.fixture
def compare(tmp_path, package, environment):
    folder = tmp_path / "peer"
    folder.mkdir()
    (folder / "llama-bench").write_text(STAND_IN.format(python=sys.executable))
    (folder / "llama-bench").chmod(0o755)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    def run(*args):
        done = subprocess.run([sys.executable, ROOT / "bench" / "compare-llama", tmp_path / "model.gguf", package, "--llama-bench", folder / "llama-bench",
                               "--pome", POME, "--out", tmp_path / "out.csv", "-p", "20", "-n", "3", "--threads", "1", *map(str, args)],
                              capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        with open(tmp_path / "out.csv", newline="") as f:
            return done, list(csv.DictReader(f))

    run.folder = folder
    return run


def test_pairs_and_ratios(compare):
    done, rows = compare("--pairs", 3, "-d", "0,30")
    assert [r["engine"] for r in rows] == (["pome"] * 3 + ["llama.cpp"] * 3) * 3  # A B A B A B
    theirs = [r for r in rows if r["engine"] == "llama.cpp"]
    assert [float(r["tokens_per_s"]) for r in theirs] == [10.0 * n for n in range(1, 10)]
    assert [(r["test"], r["tokens"], r["at_context"]) for r in theirs[:3]] == [("prefill", "20", "0"), ("decode", "3", "0"), ("decode", "3", "30")]
    for r in rows:
        assert r["date"] and r["cpu"] == rows[0]["cpu"] and r["level"] and r["threads"] == "1" and r["busy"] == "0"
        assert (r["engine"] == "pome") == (r["read_gb_per_s"] != "") == (r["limit_share"] != "")
    calls = [json.loads(line) for line in open(compare.folder / "calls.jsonl")]
    assert all(c[:6] == ["-m", c[1], "-t", "1", "-r", "1"] for c in calls) and calls[2][-2:] == ["-d", "30"]
    ours = [float(r["tokens_per_s"]) for r in rows if r["engine"] == "pome" and r["test"] == "prefill"]
    ratio = statistics.median(a / b for a, b in zip(ours, (10.0, 40.0, 70.0)))
    line = next(li for li in done.stdout.splitlines() if li.startswith("| prefill 20"))
    cells = [c.strip() for c in line.strip("|").split("|")]
    assert cells[1] == "own" and cells[4].startswith(f"{ratio:.2f} [") and cells[5] == "3" and cells[3].startswith("40.00 [10.00 .. 70.00]")
    assert "took " in done.stdout and "read bandwidth" in done.stdout


def test_pairs_of_several_calls(compare):
    """Numbers go on, and the table covers them all."""
    compare("--pairs", 2, "--no-limits")
    done, rows = compare("--pairs", 1, "--no-limits")
    assert [r["pair"] for r in rows] == ["1"] * 4 + ["2"] * 4 + ["3"] * 4
    assert next(li for li in done.stdout.splitlines() if li.startswith("| decode at 0")).split("|")[6].strip() == "3"
    done, rows = compare("--pairs", 1, "--no-limits", "--threads", "2")  # another table
    assert rows[-1]["pair"] == "4" and [li.split("|")[6].strip() for li in done.stdout.splitlines() if li.startswith("| decode at 0")] == ["3", "1"]


def test_the_archive_is_taken_without_building(tmp_path):
    """pip asks the archive's build backend for metadata; this one's would fail, and its requirements are nowhere."""
    for version in "0.3.9", "0.3.10":
        name = f"llama_cpp_python-{version}"
        source = tmp_path / name
        (source / "vendor" / "llama.cpp").mkdir(parents=True)
        (source / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: {version}\n")
        (source / "pyproject.toml").write_text('[build-system]\nrequires = ["no-such-requirement"]\nbuild-backend = "scikit_build_core.build"\n')
        (tmp_path / "index").mkdir(exist_ok=True)
        with tarfile.open(tmp_path / "index" / f"{name}.tar.gz", "w:gz") as tar:
            tar.add(source, name)
    environment = dict(os.environ, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "index"), PIP_CONFIG_FILE=os.devnull)
    done = subprocess.run([sys.executable, ROOT / "bench" / "compare-llama", "--download-only", "--cache", tmp_path / "cache"],
                          capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "cache" / "llama_cpp_python-0.3.10")
    assert (tmp_path / "cache" / "llama_cpp_python-0.3.10" / "vendor" / "llama.cpp").is_dir()


def test_busy(compare):
    done, rows = compare("--pairs", 1, "--busy", "--busy-tokens", 2, "--no-limits")
    assert [(r["engine"], r["test"], r["tokens"], r["busy"]) for r in rows] == [
        ("pome", "prefill", "20", "0"), ("pome", "decode", "3", "0"), ("llama.cpp", "prefill", "20", "0"), ("llama.cpp", "decode", "3", "0"),
        ("pome", "decode", "2", "1"), ("llama.cpp", "decode", "2", "1")]
    assert "decode at 0, busy" in done.stdout
    assert "llama.cpp own, decode at 0: busy, 150.0 % of its own free speed" in done.stdout  # the stand-in's third call to its second
    assert "pome, decode at 0: busy, " in done.stdout


def test_a_peer_that_dies_is_reported(compare):
    (compare.folder / "crash").touch()
    done, rows = compare("--pairs", 1, "--no-limits")
    assert "llama.cpp own failed: died of SIGILL" in done.stderr
    assert {r["engine"] for r in rows} == {"pome"}


def test_tables(compare, pome, package, tmp_path):
    _, rows = compare("--pairs", 3, "--no-limits")
    (tmp_path / "results").mkdir()
    (tmp_path / "out.csv").rename(tmp_path / "results" / "compare_x.csv")
    (tmp_path / "results" / "bench_x.csv").write_text(
        2 * pome("bench", package, "-p", "7", "-d", "0", "-n", 2, "-r", 2, "--csv", "--no-limits").stdout)
    earlier = [dict(r, date="2020-01-01T00:00:00+00:00", commit="old", tokens_per_s=str(2 * float(r["tokens_per_s"]))) for r in rows]
    with open(tmp_path / "results" / "compare_0.csv", "w", newline="") as f:  # was measured again: not shown
        writer = csv.DictWriter(f, rows[0].keys())
        writer.writeheader()
        writer.writerows(earlier)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: bench/tables -->\nold\n<!-- end of tables -->\nafter\n")
    for _ in range(2):  # the second time changes nothing
        subprocess.run([sys.executable, ROOT / "bench" / "tables", "--results", tmp_path / "results", "--page", page], check=True)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert text.count("| test | llama.cpp |") == 1 and text.count("| prefill 7 |") == 2 and "**int4-block32.mlpackage**" in text
    ours = [float(r["tokens_per_s"]) for r in rows if r["engine"] == "pome" and r["test"] == "decode"]
    ratios = [a / b for a, b in zip(ours, (20.0, 40.0, 60.0))]
    assert f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} – {max(ratios):.2f}) | 3 |" in text
    page.write_text("<!-- tables: bench/tables --><!-- end of tables -->")
    (tmp_path / "empty").mkdir()
    subprocess.run([sys.executable, ROOT / "bench" / "tables", "--results", tmp_path / "empty", "--page", page], check=True)
    assert "No results are stored." in page.read_text()
