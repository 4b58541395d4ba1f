#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "text/jinja.h"

static const char context_text[] =
    "{\"x\":5,\"f\":2.5,\"s\":\"Hello\",\"n\":null,\"t\":true,\"l\":[1,2,3],\"d\":{\"a\":1,\"b\":\"two\"},"
    "\"m\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"tool\",\"content\":\"\xc3\xa9\"}]}";

static pome_status render(const char *source, const pome_jinja_limits *limits, char **text, pome_error *err)
{
    json_t *context = json_loads(context_text, 0, NULL);
    pome_jinja *j = NULL;
    size_t len = 0;
    assert_non_null(context);
    pome_status status = pome_jinja_compile(&j, source, strlen(source), err);
    if (status == POME_OK)
        status = pome_jinja_render(j, context, limits, text, &len, err);
    if (status == POME_OK)
        assert_int_equal(len, strlen(*text));
    pome_jinja_destroy(&j);
    json_decref(context);
    return status;
}

/* The wanted texts were rendered by jinja2 3.1 with trim_blocks and lstrip_blocks. */
static void renders(void **state)
{
    (void)state;
    static const struct {
        const char *source, *want;
    } cases[] = {
        {"plain", "plain"},
        {"", ""},
        {"a\n{% if t %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"},
        {"a  {{- 1 -}}  b", "a1b"},
        {"x\n \t {% if t %}y{% endif %}\nz\n  {# c #}\n  {{ 1 }}", "x\nyz\n  1"},
        {"{{ x }}\n  {% if t %}y{% endif %} {% if t %}z{% endif %}", "5\ny z"},
        {"x\n   {%+ if t %}y{% endif +%}\nz", "x\n   y\nz"},
        {"{# note #}\n{% raw %}{{ x }}{% endraw %}!", "{{ x }}!"},
        {"{{ x + 1 }} {{ x // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ x / 2 }} {{ 2 ** 10 }} {{ 1 ~ 2 + 3 }}", NULL},
        {"{{ x + 1 }} {{ x // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ x / 2 }} {{ 2 ** 10 }}", "6 2 -4 2 2.5 1024"},
        {"{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ 1e-5 }} {{ 123456.789 }}", "1e+16 0.30000000000000004 1.0 1e-05 123456.789"},
        {"{{ [1, 'a', none, true, {'k': (1,)}] }}", "[1, 'a', None, True, {'k': (1,)}]"},
        {"{{ \"it's\" }} {{ [\"it's\", '\\n\\x00'] }}", "it's [\"it's\", '\\n\\x00']"},
        {"{{ l[::-1] }} {{ s[1:-1] }} {{ l[-1] }} {{ s[0] }}", "[3, 2, 1] ell 3 H"},
        {"{{ missing }}|{{ missing | default('D') }}|{{ missing is defined }}", "|D|False"},
        {"{{ 'a' if n else 'b' }}{{ 'c' if n }}", "b"},
        {"{{ 1 < 2 < 3 }} {{ 2 in l }} {{ 'z' not in s }} {{ not n and t }}", "True True True True"},
        {"{% for i in l if i != 2 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ ',' if not loop.last }}{% endfor %}",
         "1/2:1,2/2:3"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }};{% else %}none{% endfor %}", "a=1;b=two;"},
        {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
        {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
         "02"},
        {"{% set a = 1 %}{% for i in l %}{% set a = 9 %}{% endfor %}{{ a }}", "1"},
        {"{% set ns = namespace(a=0) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}", "6"},
        {"{% set a %}[{{ x }}]{% endset %}{{ a }}{% filter upper %}abc{% endfilter %}", "[5]ABC"},
        {"{% macro m(a, b=2) %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}{{ m(b=0, a=9) }}", "<12><13><90>"},
        {"{% macro m() %}({{ caller(1) }}){% endmacro %}{% call(q) m() %}{{ q }}{{ x }}{% endcall %}", "(15)"},
        {"{% generation %}a{% endgeneration %}", "a"},
        {"{{ m | selectattr('role', 'equalto', 'tool') | map(attribute='content') | join('-') }}", "\xc3\xa9"},
        {"{{ d | tojson }} {{ m[1] | tojson }}", "{\"a\": 1, \"b\": \"two\"} {\"role\": \"tool\", \"content\": \"\xc3\xa9\"}"},
        {"{{ l | tojson(indent=2) }}", "[\n  1,\n  2,\n  3\n]"},
        {"{{ '<&\"' | tojson }} {{ '<' | e }}", "\"<&\\\"\" &lt;"},
        {"{{ ' a b '.strip().split(' ') }} {{ s.upper() }} {{ s.startswith('He') }} {{ ','.join(['p', 'q']) }}",
         "['a', 'b'] HELLO True p,q"},
        {"{{ d.get('a') }} {{ d.get('z', 0) }} {{ d.keys() | list }}", "1 0 ['a', 'b']"},
        {"{{ '%s-%03d' % ('a', 7) }} {{ '%.2f' | format(f) }}", "a-007 2.50"},
        {"{{ ['b', 'A', 'c'] | sort }} {{ l | sum }} {{ l | last }} {{ 'abc' | length }} {{ '4.9' | int }}",
         "['A', 'b', 'c'] 6 3 3 4"},
        {"{{ x is odd }} {{ f is float }} {{ s is string }} {{ n is none }} {{ d is mapping }} {{ x is divisibleby 5 }}",
         "True True True True True True"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        pome_error err = {0};
        pome_status status = render(cases[i].source, NULL, &text, &err);
        if (!cases[i].want) { /* ~ binds more tightly than +: a string and a number */
            assert_int_equal(status, POME_ERR_ARG);
            continue;
        }
        if (status != POME_OK || strcmp(text, cases[i].want) != 0)
            fail_msg("%s\n  gave  %s%s\n  wants %s", cases[i].source, text ? text : "", err.message, cases[i].want);
        free(text);
    }
}

static void expect_failure(const char *source, const pome_jinja_limits *limits, pome_status code, const char *part)
{
    char *text = NULL;
    pome_error err = {0};
    pome_status status = render(source, limits, &text, &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("%.200s\n  gave %d \"%s\", wanted %d \"%s\"", source, (int)status, err.message, (int)code, part);
    assert_null(text);
}

static void fails_with_line_and_reason(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        pome_status code;
        const char *part;
    } cases[] = {
        {"\n\n{{ raise_exception('stop ' ~ x) }}", POME_ERR_ARG, "line 3: stop 5"},
        {"{{ missing.a }}", POME_ERR_ARG, "line 1: 'missing' is undefined"},
        {"{{ d.z.a }}", POME_ERR_ARG, "'dict object' has no attribute 'z'"},
        {"{{ 'a' + 1 }}", POME_ERR_ARG, "str and int"},
        {"{{ 1 // 0 }}", POME_ERR_ARG, "zero"},
        {"{{ 1 < 'a' }}", POME_ERR_ARG, "no order"},
        {"{{ x() }}", POME_ERR_ARG, "cannot be called"},
        {"{% for i in x %}{% endfor %}", POME_ERR_ARG, "cannot be looped over"},
        {"{% for a, b in l %}{% endfor %}", POME_ERR_ARG, "cannot be looped over"},
        {"{{ l.append(1) }}", POME_ERR_ARG, "may not change"},
        {"{% set d.a = 1 %}", POME_ERR_ARG, "non-namespace"},
        {"{{ 9223372036854775807 + 1 }}", POME_ERR_LIMIT, "64 bits"},
        {"{{ x | nosuch }}", POME_ERR_UNSUPPORTED, "filter \"nosuch\""},
        {"{{ x is nosuch }}", POME_ERR_UNSUPPORTED, "test \"nosuch\""},
        {"{{ s.encode() }}", POME_ERR_UNSUPPORTED, "encode"},
        {"\n{% include 'x' %}", POME_ERR_UNSUPPORTED, "line 2: statement \"include\""},
        {"{% block a %}{% endblock %}", POME_ERR_UNSUPPORTED, "block"},
        {"{{ x", POME_ERR_FORMAT, "without \"}}\""},
        {"{% if x %}", POME_ERR_FORMAT, "the end of the template"},
        {"{{ 1 + }}", POME_ERR_FORMAT, "an expression is wanted"},
        {"{{ 'a }}", POME_ERR_FORMAT, "a string without an end"},
        {"{# a", POME_ERR_FORMAT, "a comment without an end"},
        {"{% raw %}a", POME_ERR_FORMAT, "endraw"},
        {"{{ (1 }}", POME_ERR_FORMAT, "does not match"},
        {"{% for x in l %}{% endif %}", POME_ERR_UNSUPPORTED, "endif"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_failure(cases[i].source, NULL, cases[i].code, cases[i].part);
}

static char *repeated(const char *head, const char *part, size_t n, const char *tail)
{
    size_t part_len = strlen(part), head_len = strlen(head);
    char *s = malloc(head_len + n * part_len + strlen(tail) + 1), *p = s;
    memcpy(p, head, head_len);
    p += head_len;
    for (size_t i = 0; i < n; i++, p += part_len)
        memcpy(p, part, part_len);
    strcpy(p, tail);
    return s;
}

static void hostile_templates_end(void **state)
{
    (void)state;
    expect_failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", NULL, POME_ERR_LIMIT,
                   "");
    expect_failure("{{ range(100001) }}", NULL, POME_ERR_LIMIT, "range");
    expect_failure("{{ 'abcdefgh' * 99999999 }}", NULL, POME_ERR_LIMIT, "longer");
    expect_failure("{{ 'a'.center(9999999999) }}", NULL, POME_ERR_LIMIT, "longer");
    expect_failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, POME_ERR_LIMIT, "deep");
    expect_failure("{% set ns = namespace(s='abcdefghij') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                   NULL, POME_ERR_LIMIT, "");
    expect_failure("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", NULL,
                   POME_ERR_LIMIT, "deep");
    expect_failure("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
                   "{{ ns.l == ns.l }}{{ ns.l | tojson }}", NULL, POME_ERR_LIMIT, "deep");
    const pome_jinja_limits small = {1 << 16, 1000, 1000};
    expect_failure("{% for i in range(400) %}abcdef{% endfor %}", &small, POME_ERR_LIMIT, "");
    expect_failure("{% for i in range(900) %}{{ i }}{% endfor %}", &small, POME_ERR_LIMIT, "steps");
    static const struct {
        const char *head, *part, *tail;
    } nests[] = {
        {"{{ ", "(", ""}, {"{{ ", "[", ""}, {"{{ ", "not ", "x }}"}, {"{{ ", "-", "x }}"}, {"{{ x", ".a", " }}"},
        {"{{ x", " + x", " }}"}, {"{{ x", "|e", " }}"}, {"{{ x", " if x else x", " }}"}, {"", "{% if x %}", ""},
        {"{% if x %}", "{% elif x %}", "{% endif %}"}, {"", "{% for a in l %}", ""}, {"{{ x", " is defined", " }}"},
        {"{{ x", "()", " }}"}, {"{{ x", " and x", " }}"}, {"{{ x", "[x", " }}"}, {"{{ {'a': ", "{'a': ", " }}"},
    };
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        char *source = repeated(nests[i].head, nests[i].part, 20000, nests[i].tail), *text = NULL;
        pome_error err = {0};
        pome_status status = render(source, NULL, &text, &err);
        if (status != POME_ERR_LIMIT && status != POME_ERR_FORMAT)
            fail_msg("%s%s...: %d %s", nests[i].head, nests[i].part, (int)status, err.message);
        free(source);
    }
}

/* Every prefix of a template that uses much of the language is a template or an error. */
static void survives_truncation(void **state)
{
    (void)state;
    static const char source[] =
        "{%- macro m(a, b=[1, 'x']) -%}{{ a|join(', ') }}{%- endmacro -%}{# c #}{% for x, y in d.items() if x is defined %}"
        "{%- if loop.first and not (y > 3 or y in l[1:2:1]) -%}{{ {'k': -1.5e3}['k'] ~ \"q\\n\" }}{% elif n %}{% break %}"
        "{% else %}{% raw %}{{ }}{% endraw %}{% endif %}{% endfor %}{% set ns = namespace(a=1) %}{% set ns.b %}t{% endset %}"
        "{% call m(l) %}{% endcall %}{{ m(l) if ns.a == 1 else none }}\n";
    for (size_t n = 0; n < sizeof source; n++) {
        char cut[sizeof source], *text = NULL;
        pome_error err = {0};
        memcpy(cut, source, n);
        cut[n] = '\0';
        pome_status status = render(cut, NULL, &text, &err);
        assert_true(status == POME_OK || err.message[0]);
        assert_true(status == POME_OK || !text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders),
        cmocka_unit_test(fails_with_line_and_reason),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(survives_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
