"""The Jinja engine against jinja2, set up as transformers sets it up: language cases, chat templates of the common
formats with many conversations, and random expressions."""

import itertools
import json
import os
import pathlib
import random
import subprocess

import pytest

jinja2 = pytest.importorskip("jinja2")
from datetime import datetime

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

import chat_templates

CONTEXTS = chat_templates.contexts()


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def make_environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.now().strftime(f)
    return env


ENV = make_environment()


class Probe:
    def __init__(self):
        build = pathlib.Path(os.environ["POME_LIBRARY"]).parent
        places = [build / "tests" / "text_probe", build / "text_probe"]
        program = next((p for p in places if p.exists()), None)
        if program is None:
            pytest.skip("text_probe is not built")
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        line = json.dumps({"template": template, "context": context}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def probe():
    p = Probe()
    yield p
    p.process.stdin.close()
    p.process.wait()


def expected(template, context):
    """(text, None) or (None, error)."""
    try:
        return ENV.from_string(template).render(**context), None
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError, KeyError, IndexError,
            ZeroDivisionError, OverflowError, RecursionError) as e:
        return None, e


def check(probe, template, context):
    want, error = expected(template, context)
    if error is None and " at 0x" in want:
        return  # the address of a Python object
    got = probe.render(template, context)
    if error is None:
        assert got == {"text": want}, (template, context, got)
    else:
        assert "error" in got, (template, error, got)
        if type(error) is jinja2.exceptions.TemplateError:
            assert got["code"] == "POME_ERR_ARG" and str(error) in got["error"]


LANGUAGE = chat_templates.language_cases()


@pytest.mark.parametrize("template", LANGUAGE)
def test_language(probe, template):
    for context in (chat_templates.LANGUAGE_CONTEXT, {}):
        check(probe, template, context)


@pytest.mark.parametrize("name", chat_templates.TEMPLATES)
def test_chat_templates(probe, name):
    rendered = 0
    for context in CONTEXTS:
        check(probe, chat_templates.TEMPLATES[name], context)
        rendered += expected(chat_templates.TEMPLATES[name], context)[1] is None
    assert rendered > 5


def given_templates():
    folder = os.environ.get("POME_TEMPLATES")
    return sorted(pathlib.Path(folder).glob("*.jinja")) if folder else []


@pytest.mark.parametrize("path", given_templates(), ids=lambda p: p.name)
def test_given_templates(probe, path):
    """Every *.jinja in the folder $POME_TEMPLATES, for templates that are not ours to copy."""
    template = path.read_text()
    for context in CONTEXTS:
        check(probe, template, context)


class Generator:
    """Random expressions over a few variables; most evaluate, some raise."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def atom(self):
        return self.rng.choice(["1", "2", "-3", "0", "2.5", "1e3", "'abc'", "'a b'", "''", "\"it's\"", "true", "false",
                                "none", "x", "s", "n", "items", "d", "missing", "d.k", "d['k']", "items[0]", "s[1]",
                                "items[-1]", "s[::-1]", "items[1:]", "d.missing", "[1, 'a', none]", "{'a': 1, 'b': [2]}",
                                "(1, 2)", "(range(3)|list)", "'é🙂'", "m", "m[0].role", "[]", "{}"])

    def expression(self, depth):
        r = self.rng
        if depth == 0:
            return self.atom()
        e = lambda: self.expression(depth - 1)
        kind = r.randrange(10)
        if kind == 0:
            return f"({e()} {r.choice(['+', '-', '*', '/', '//', '%', '~'])} {e()})"
        if kind == 1:
            return f"({e()} {r.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {e()})"
        if kind == 2:
            return f"({e()} {r.choice(['and', 'or'])} {e()})"
        if kind == 3:
            return f"(not {e()})"
        if kind == 4:
            return f"({e()} if {e()} else {e()})"
        if kind == 5:
            test = r.choice(["defined", "undefined", "none", "string", "number", "integer", "float", "boolean",
                             "mapping", "iterable", "sequence", "true", "false", "even", "odd", "divisibleby(2)",
                             "eq(1)", "in([1, 'abc'])", "upper", "lower", "callable", "sameas(none)"])
            return f"({e()} is {r.choice(['', 'not '])}{test})"
        if kind in (6, 7):
            f = r.choice(["upper", "lower", "length", "string", "list", "first", "last", "tojson", "trim", "int",
                          "float", "abs", "sort", "reverse|list", "join('-')", "default('D')", "default('D', true)",
                          "unique|list", "sum", "min", "max", "capitalize", "title", "replace('a', 'b')", "round(1)",
                          "tojson(indent=2)", "map('string')|list", "select|list", "reject('none')|list",
                          "items|list", "dictsort", "indent(2)", "count", "wordcount", "batch(2)|list", "center(9)",
                          "selectattr('role', 'equalto', 'user')|list", "map(attribute='role')|list", "truncate(5)",
                          "groupby('role')", "slice(2)|list", "urlencode", "format(1)"])
            return f"({e()}|{f})"
        if kind == 8:
            m = r.choice(["upper()", "strip()", "split()", "split('b')", "startswith('a')", "items()|list", "keys()|list",
                          "get('k')", "get('z', 9)", "title()", "replace('b', 'x')", "find('b')", "index('a')",
                          "count('a')", "rstrip('c')", "join(['x', 'y'])", "isdigit()", "splitlines()", "values()|list",
                          "capitalize()", "rsplit('b', 1)", "zfill(5)", "partition('b')", "center(8, '*')"])
            return f"({e()}).{m}"
        return f"[{e()}, {e()}]"


@pytest.mark.parametrize("seed", range(25))
def test_random_expressions(probe, seed):
    g = Generator(seed)
    context = {"x": 7, "s": "hello", "n": None, "items": [3, 1, 2], "d": {"k": "v", "n": 1},
               "m": [{"role": "user", "content": "hi"}, {"role": "tool", "content": ""}]}
    for _ in range(60):
        template = "{{ " + g.expression(g.rng.randint(1, 3)) + " }}"
        want, error = expected(template, context)
        if want is not None and (" at 0x" in want or "dict_" in want or "range(" in want or "class '" in want
                                 or "_GroupTuple" in want):
            continue  # Python's own spelling of an object
        if isinstance(error, (MemoryError, RecursionError)):
            continue
        got = probe.render(template, context)
        if got.get("code") in ("POME_ERR_UNSUPPORTED", "POME_ERR_LIMIT"):
            continue
        if error is None:
            assert got == {"text": want}, template
        else:
            assert "error" in got, (template, error, got)
