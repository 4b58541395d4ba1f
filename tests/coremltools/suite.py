"""Runs coremltools' tests in parts and reports: see scripts/coremltools-suite.

Each part is a pytest process of its own that logs every test as it ends. A part that dies is started again behind the test
that killed it, and one that was stopped goes on where it was."""
import argparse
import collections
import datetime
import fnmatch
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KNOWN = ROOT / "tests" / "coremltools" / "known.toml"
DOCUMENT = ROOT / "docs" / "coremltools-tests.md"
SITE = pathlib.Path(importlib.util.find_spec("coremltools").origin).parent.parent

MIL = "coremltools/converters/mil"
# name: (paths, parameter sets of a function in the sample, share of predictions that must pass)
GROUPS = {
    "ops": ([f"{MIL}/mil/ops/tests"], 3, 0.995),
    "torch": ([f"{MIL}/frontend/torch/test"], 2, 0.99),
    "passes": ([f"{MIL}/mil/passes/tests", f"{MIL}/mil/tests"], 1, 0.99),
    "backend": ([f"{MIL}/backend/mil", f"{MIL}/frontend/milproto"], 4, 0.99),
    "optimize": (["coremltools/test/optimize/coreml"], 2, 0.99),
}


def read_results(folder, group):
    """The last result of each test."""
    results = {}
    for path in sorted(folder.glob(f"{group}.*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                result = json.loads(line)
            except ValueError:  # cut short
                continue
            results[result["id"]] = result
    return results


def forget(folder, group, outcomes):
    for path in folder.glob(f"{group}.*.jsonl"):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if json.loads(line)["outcome"] not in outcomes]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


class Part:
    """One process of a group."""

    def __init__(self, folder, group, index, parts, sample):
        self.log = folder / f"{group}.{index}.jsonl"
        self.output = folder / f"{group}.{index}.log"
        self.folder, self.group, self.index, self.parts, self.sample = folder, group, index, parts, sample
        self.tries = 0
        self.start()

    def start(self):
        done = self.folder / f"{self.group}.{self.index}.done"
        done.write_text("".join(id + "\n" for id in read_results(self.folder, self.group)), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "pome.coremltools.pytest_plugin", "-p", "no:cacheprovider",
                   "--continue-on-collection-errors", "--rootdir", SITE, "--pome-log", self.log, "--pome-skip", done,
                   "--pome-shard", f"{self.index}/{self.parts}"]
        if self.sample:
            command += ["--pome-sample", str(self.sample)]
        environment = {**os.environ, "INCLUDE_MIL_FP32_UNIT_TESTS": "1", "POME_THREADS": "1", "TQDM_DISABLE": "1"}
        beside = [os.path.join(sys.prefix, "beside"), os.environ.get("PYTHONPATH")]  # torchvision, see scripts/common.sh
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, beside))
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment.setdefault(name, "1")
        with open(self.output, "a", encoding="utf-8") as output:
            self.process = subprocess.Popen([*map(str, command), *(str(SITE / path) for path in GROUPS[self.group][0])],
                                            stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=self.folder)

    def ended_well(self):
        """After the process has ended. A test that killed it is logged as such, and the rest started."""
        code = self.process.returncode
        if code in (0, 1, 5):
            return True
        running = pathlib.Path(f"{self.log}.running")
        if code >= 0 or not running.exists() or self.tries >= 20:
            print(f"{self.group}: part {self.index} ended with {code}, see {self.output}", file=sys.stderr)
            return False
        self.tries += 1
        crash = {"id": running.read_text(encoding="utf-8"), "outcome": "failed", "when": "call", "seconds": 0, "predictions": 1,
                 "message": f"the process died of signal {-code}"}
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(json.dumps(crash) + "\n")
        self.start()
        return None


def run(folder, group, jobs, sample):
    parts = [Part(folder, group, index, jobs, GROUPS[group][1] if sample else 0) for index in range(jobs)]
    good = True
    while parts:
        parts[0].process.wait()
        ended = parts[0].ended_well()
        if ended is not None:
            good &= ended
            parts.pop(0)
    return good


def read_known():
    with open(KNOWN, "rb") as file:
        entries = tomllib.load(file).get("known", [])
    for entry in entries:
        if entry["whose"] not in ("theirs", "ours") or not entry["reason"]:
            raise ValueError(f"{KNOWN}: {entry}")
    return entries


def is_named(pattern, id):
    pattern = re.sub(r"\[(?!!)", "[[]", pattern)  # brackets are plain but for [!...]
    return fnmatch.fnmatchcase(id, pattern) or fnmatch.fnmatchcase(id.split("[")[0], pattern)


def find_known(entries, result):
    for entry in entries:
        tests = entry["test"] if isinstance(entry["test"], list) else [entry["test"]]
        if any(is_named(pattern, result["id"]) for pattern in tests) and \
                fnmatch.fnmatchcase(result["message"], entry.get("message", "*")) and \
                ("half_error" not in entry or result.get("half_error", math.inf) <= entry["half_error"]):
            return entry
    return None


def missing_or_test(result):
    """What to list a failure under: operators that are missing, or the test."""
    missing = re.findall(r"(\w+) \(CoreML\d", result["message"]) if "not implemented" in result["message"] else []
    return " ".join(sorted(set(missing))) or result["id"].split("[")[0].replace(MIL + "/", "")


PRECISIONS = ("fp16", "fp32", "")


class Count:
    """Of a set of tests: how many ran and predicted, and of which failures the reasons are whose."""

    def __init__(self, results, entries):
        failed = [r for r in results if r["outcome"] == "failed"]
        known = {r["id"]: find_known(entries, r) for r in failed}
        whose = {id: entry["whose"] if entry else "unknown" for id, entry in known.items()}
        predicted = [r for r in results if r["predictions"] and r["outcome"] != "skipped"]
        self.tests = len(results)
        self.skipped = sum(r["outcome"] == "skipped" for r in results)
        self.whose = collections.Counter(whose.values())
        self.predicted = len(predicted)
        self.passed = sum(r["id"] not in whose for r in predicted)
        self.fair = self.passed / max(1, sum(whose.get(r["id"]) != "theirs" for r in predicted))
        self.known = collections.Counter(entries.index(entry) for entry in known.values() if entry)
        self.unknown = [r for r in failed if not known[r["id"]]]

    def share(self):
        return f"{self.passed} ({100 * self.passed / max(1, self.predicted):.2f} %)"


def table(head, rows):
    return ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def group_rows(counts):
    return [[group, precision or "-", c.tests, c.skipped, c.predicted, c.share(), f"{100 * c.fair:.2f} %", c.whose["theirs"],
             c.whose["ours"], c.whose["unknown"]] for (group, precision), c in counts.items()]


def known_rows(counts, entries):
    total = sum((c.known for c in counts.values()), collections.Counter())
    for index, entry in enumerate(entries):
        tests = entry["test"] if isinstance(entry["test"], list) else [entry["test"]]
        names = ", ".join("any" if t == "*" else re.sub(r"precision=.*|\*$", "", re.sub(r".*/(?=.*::)|^\*/", "", t)) for t in tests)
        yield [total[index], entry["whose"], f"`{names}`", entry["reason"]]


def operator_rows(results, entries):
    by_operator = collections.defaultdict(list)
    for result in results:
        for name in result.get("operators", []):
            by_operator[name].append(result)
    for name, tests in sorted(by_operator.items()):
        row = [f"`{name}`"]
        for precision in PRECISIONS:
            c = Count([r for r in tests if precision_of(r["id"]) == precision], entries)
            row += [c.predicted, c.passed]
        c = Count(tests, entries)
        yield [*row, c.whose["theirs"], c.whose["ours"] + c.whose["unknown"]]


def report(folder, groups, entries, sample):
    """Writes report.md and failures.md; True if all failures are known, and of a whole run enough predictions pass (a sample
    has few of the tests with many parameter sets)."""
    counts, all_results, good = {}, [], True
    for group in groups:
        results = list(read_results(folder, group).values())
        all_results += results
        for precision in PRECISIONS:
            chosen = [r for r in results if precision_of(r["id"]) == precision]
            if not chosen:
                continue
            c = counts[group, precision] = Count(chosen, entries)
            if c.predicted and not sample and c.fair < GROUPS[group][2]:
                good = False
                print(f"{group} {precision}: {100 * c.fair:.2f} % of the predictions pass, wanted {100 * GROUPS[group][2]} %")
    summary = table(["group", "precision", "tests", "skipped", "predicted", "passed of these", "without theirs", "fail: theirs",
                     "fail: ours", "not known"], group_rows(counts))
    known = table(["tests", "whose", "test", "reason"], known_rows(counts, entries))
    operators = table(["operator", "fp16: tests", "passed", "fp32: tests", "passed", "other: tests", "passed", "fail: theirs", "fail: ours"],
                      operator_rows(all_results, entries))
    (folder / "report.md").write_text("\n".join([*summary, *known, *operators]), encoding="utf-8")
    unknown = [r for c in counts.values() for r in c.unknown]
    by_test = collections.defaultdict(list)
    for result in unknown:
        by_test[missing_or_test(result)].append(result)
    lines = []
    for name, results in sorted(by_test.items(), key=lambda item: -len(item[1])):
        lines.append(f"- {name}: {len(results)}\n  - {results[0]['id']}\n  - {' '.join(results[0]['message'].split())[:300]}")
    (folder / "failures.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(summary))
    print("\n".join(lines[:60]))
    return good and not unknown


def publish(folder):
    """Puts the tables into the documentation, with the day and what they were made with."""
    head, marker, _ = DOCUMENT.read_text(encoding="utf-8").partition("--publish -->\n")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("coremltools", "torch", "numpy"))
    day = datetime.date.today().isoformat()
    tables = (folder / "report.md").read_text(encoding="utf-8")
    DOCUMENT.write_text(f"{head}{marker}\n`scripts/coremltools-suite`, {day}: {versions}.\n\n{tables}", encoding="utf-8")


def precision_of(id):
    found = re.search(r"precision='(fp16|fp32)'|'mlprogram', '(fp16|fp32)'", id)
    return (found[1] or found[2]) if found else ""


def write_junit(path, folder, groups, entries):
    """For scripts/test: a case per test that ran; what is known to fail counts as skipped."""
    import xml.etree.ElementTree as tree

    suite = tree.Element("testsuite", name="coremltools")
    for group in groups:
        for id, result in read_results(folder, group).items():
            case = tree.SubElement(suite, "testcase", classname=group, name=id, time=str(result["seconds"]))
            if result["outcome"] in ("skipped", "xfailed") or result["outcome"] == "failed" and find_known(entries, result):
                tree.SubElement(case, "skipped")
            elif result["outcome"] == "failed":
                tree.SubElement(case, "failure", message=re.sub(r"[^\t\n\x20-\ud7ff]", "?", result["message"]))
    tree.ElementTree(suite).write(path)


def main():
    parser = argparse.ArgumentParser(prog="scripts/coremltools-suite")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--junit", metavar="FILE")
    options = parser.parse_args()
    groups = options.groups or list(GROUPS)
    if set(groups) - set(GROUPS):
        parser.error(f"groups are {', '.join(GROUPS)}")
    folder = ROOT / "build" / ("coremltools-sample" if options.sample else "coremltools-suite")
    folder.mkdir(parents=True, exist_ok=True)
    entries, good = read_known(), True
    for group in groups:
        if options.fresh:
            for path in folder.glob(f"{group}.*"):
                path.unlink()
        if options.failed:
            forget(folder, group, {"failed"})
        if not options.report:
            good &= run(folder, group, options.jobs, options.sample)
    good &= report(folder, groups, entries, options.sample)
    if options.publish:
        publish(folder)
    if options.junit:
        write_junit(options.junit, folder, groups, entries)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
