"""What holds for every verb: help, versions, wrong usage, generated pages, output that cannot be written."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import POME

VERBS = ["run", "predict", "diff", "inspect", "tokenize", "convert", "compile", "bench", "perplexity"]


def test_version(pome):
    done = pome("--version")
    assert done.returncode == 0 and re.fullmatch(r"pome \d+\.\d+\.\d+\n", done.stdout)


def test_overview_names_every_verb(pome):
    done = pome("--help")
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines() if re.match(r"  \w+  ", line)] == VERBS


def test_no_arguments_is_wrong_usage(fails):
    fails(2, ["usage: pome"])


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_usage_options_and_examples(pome, verb):
    done = pome(verb, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"usage: pome {verb} {dict(convert='SOURCE', compile='', diff='A [B]').get(verb, 'MODEL')}")
    assert "\nOptions:\n" in done.stdout and f"\nExamples:\n  " in done.stdout
    assert "--help-man" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert pome("help", verb).stdout == done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_too_few_arguments(fails, verb):
    if verb == "run":  # a model may also be named by an option
        fails(2, ["pome run: no MODEL is given (or --repo-id, or --local-model-directory)"], verb)
    else:
        fails(2, [f"pome {verb}: too few arguments", f"usage: pome {verb}"], verb)


@pytest.mark.parametrize("typed,meant", [("rnu", "run"), ("predcit", "predict"), ("inspekt", "inspect"), ("tokenise", "tokenize")])
def test_a_verb_that_was_nearly_meant(fails, typed, meant):
    fails(2, [f"no verb '{typed}'", f"did you mean '{meant}'?"], typed)


def test_a_verb_that_is_nothing(fails):
    assert "did you mean" not in fails(2, ["no verb 'xyzzy'"], "xyzzy")


def test_an_option_that_was_nearly_meant(fails):
    fails(2, ["no option --temprature", "did you mean --temperature?"], "run", "m", "--temprature=1")


@pytest.mark.parametrize("args,part", [
    (["--temperature", "hot"], "'hot' is not a number"),
    (["--temperature", "-1"], "-1 is not in [0, 1e+06]"),
    (["--top-k", "2.5"], "'2.5' is not a whole number"),
    (["--numerics", "quick"], "'quick' is none of exact|fast|fp16"),
    (["--threads"], "--threads wants a value (N)"),
    (["--raw=yes"], "--raw takes no value"),
    (["--top-p", "0"], "0 would leave no token"),
    (["--ids", "1,x"], "'x' is not a token id"),
    (["--ids", ""], "there are no ids"),
    (["--ids", "1", "prompt"], "--ids stands in for the prompt"),
    (["--prompt", "a", "b"], "the prompt is given twice"),
    (["--interactive", "prompt"], "--interactive asks for prompts"),
])
def test_wrong_values(fails, args, part):
    fails(2, [part], "run", "model", *args)


def test_settings_from_the_environment(pome, package):
    ids = ["run", package, "--ids", "1,2,3", "--print-ids", "--temperature", "0", "--ignore-eos"]
    assert len(pome(*ids, env={"POME_MAX_NEW_TOKENS": "3"}).stdout.split()) == 3
    assert len(pome(*ids, "-n", "4", env={"POME_MAX_NEW_TOKENS": "3"}).stdout.split()) == 4
    done = pome(*ids, env={"POME_MAX_NEW_TOKENS": "three"})
    assert done.returncode == 2 and "environment variable POME_MAX_NEW_TOKENS: 'three' is not a whole number" in done.stderr


def test_settings_from_the_config_file(pome, package, tmp_path):
    ids = ["run", package, "--ids", "1,2,3", "--print-ids", "--ignore-eos"]
    config = tmp_path / ".config" / "pome" / "config"
    config.parent.mkdir(parents=True)
    config.write_text("# settings\n\nrun.max-new-tokens = 3\n  temperature=0\r\nthreads = 1\ntokenize.tokenizer = elsewhere\n")
    first = pome(*ids)
    assert first.returncode == 0 and len(first.stdout.split()) == 3, first.stderr
    assert first.stdout == pome(*ids).stdout  # temperature 0
    assert len(pome(*ids, env={"POME_MAX_NEW_TOKENS": "4"}).stdout.split()) == 4
    assert len(pome(*ids, "-n", 5, env={"POME_MAX_NEW_TOKENS": "4"}).stdout.split()) == 5
    assert pome("inspect", package).returncode == 0  # settings of other verbs are none of its business
    other = tmp_path / "xdg" / "pome" / "config"
    other.parent.mkdir(parents=True)
    for text, part in (("nothing", "expected NAME = VALUE"), ("no-such = 1", "no setting 'no-such'"), ("run.no-such = 1", "no setting 'no-such'"),
                       ("dance.top-k = 1", "no setting 'dance'"), ("\ntop-k = many", ":2: 'many' is not a whole number")):
        other.write_text(text)
        done = pome(*ids, env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")})
        assert done.returncode == 2 and part in done.stderr, done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_man_page(pome, verb):
    done = pome(verb, "--help-man")
    assert done.returncode == 0
    assert done.stdout.startswith(f".TH POME-{verb} 1")
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES"):
        assert f".SH {section}\n" in done.stdout
    if shutil.which("groff"):
        shown = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=done.stdout, capture_output=True, text=True)
        assert shown.returncode == 0 and shown.stderr == ""


def test_completion(pome, tmp_path):
    for shell in ("bash", "zsh", "fish"):
        done = pome("completion", shell)
        assert done.returncode == 0 and "temperature" in done.stdout
        if shutil.which(shell):
            script = tmp_path / shell
            script.write_text(done.stdout)
            assert subprocess.run([shell, "-n", str(script)], capture_output=True).returncode == 0
    assert pome("completion", "tcsh").returncode == 2


def test_bash_completes(pome, tmp_path):
    if not shutil.which("bash"):
        pytest.skip("no bash")
    (tmp_path / "c").write_text(pome("completion", "bash").stdout)

    def complete(*words):
        script = (f'. {tmp_path}/c; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _pome; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.split()

    assert complete("pome", "in") == ["inspect"]
    assert complete("pome", "run", "--temp") == ["--temperature"]
    assert complete("pome", "run", "--numerics", "f") == ["fast", "fp16"]


def test_full_disk(fails_to_write):
    with open("/dev/full", "w") as full:
        fails_to_write(full, "No space left on device")


def test_closed_pipe(fails_to_write):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        fails_to_write(closed, "Broken pipe")


@pytest.fixture
def fails_to_write(environment, package):
    def run(stdout, reason):
        for args in (["--help"], ["inspect", package], ["inspect", package, "--json"], ["inspect", package, "--mil"],
                     ["run", package, "--ids", "1", "--print-ids", "-n", "3"]):
            done = subprocess.run([POME, *map(str, args)], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                                  text=True, env=environment, timeout=60)
            assert done.returncode == 1, args
            assert done.stderr == f"pome: cannot write to standard output: {reason}\n", args

    return run
