#!/usr/bin/env python3
"""Writes tests/testdata/chat_template_golden.json: the output of jinja2, which text/chat_template.cc must equal.

The environment is the one that Hugging Face transformers builds for chat templates. Needs `jinja2`
and `gguf` from PyPI (checked with jinja2 3.1.6):
  python3 tests/oracle/chat_template_golden.py --model SmolLM2-135M-Instruct.Q4_1.gguf
To test more cases than are in the repository, run it with --conversations 6000 --out /tmp/golden.json, and then
  BATON_CHAT_TEMPLATE_GOLDEN=/tmp/golden.json text_tests --gtest_filter='ChatTemplateGolden*'
"""
import argparse
import datetime
import json
import os
import random

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 11, 5, 9, 7, 3)

# Templates in the style of well-known chat templates, written for this test.
TEMPLATES = {
    "llama3": """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{% endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- {"output": message.content} | tojson }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "chatml_thinking": """{%- if tools %}
    {{- 'tools' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "turns": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant') }}
    {% endif %}
    {% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
<start_of_turn>{{ role }}
{{ message['content'] | trim }}<end_of_turn>
{% endfor %}
{% if add_generation_prompt %}
<start_of_turn>model
{% endif %}
""",
    "instruct": """{%- if messages[0]["role"] == "system" -%}
    {%- set system_message = messages[0]["content"] -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- set users = loop_messages | selectattr("role", "equalto", "user") | list -%}
{{- bos_token -}}
{#- one
   comment -#}
{%- for message in loop_messages if message.role in ['user', 'assistant'] -%}
    {%- if message["role"] == "user" -%}
        {%- if loop.last and system_message is defined -%}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" -}}
        {%- else -%}
            {{- "[INST] " ~ message["content"] ~ "[/INST]" -}}
        {%- endif -%}
    {%- else -%}
        {{- " " + message["content"]|trim + eos_token -}}
    {%- endif -%}
{%- else -%}
    nobody of {{ users|length }}
{%- endfor -%}""",
    "pipes": """{% macro turn(role, text, close=true) %}
{{ '<|' ~ role ~ '|>' }}
{{ text }}{{ '<|end|>' if close }}
{% endmacro %}
{% for message in messages %}
{% if message['content'] %}{{ turn(message.role, message['content']) }}{% else %}{{ turn(message.role, '(nothing)', close=false) }}{% endif %}
{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}{{ '<|assistant|>\\n' }}{%- else %}{{ eos_token }}{% endif %}""",
    "deep": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{{'<|User|>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{% generation %}{{'<|Assistant|>' + content + '<|end_of_sentence|>'}}{% endgeneration %}{%- endif %}{%- endfor -%}{% if add_generation_prompt %}{{'<|Assistant|><think>\\n'}}{% endif %}""",
    "labels": """{%- set labels = {'system': 'S', 'user': 'U', 'assistant': 'A'} -%}
{%- set text -%}
{%- for message in messages %}
{{ loop.revindex }}/{{ loop.length }} {{ labels.get(message.role, '?') }} {{ message.role|title }}: {{ message.content.replace('\\n', ' ')[:20] }}|{{ message['content'][-3:] }}
{%- if loop.nextitem is defined and loop.nextitem.role == message.role %} (again){% endif -%}
{% if loop.index > 4 %}{% break %}{% endif %}
{%- endfor %}
{%- endset -%}
{{ text|trim }}
{{ messages|map(attribute='role')|join(', ') }}
{% for key, value in messages[-1].items() %}
    {{ key }}={{ value|tojson }}
{% endfor %}
""",
}

# Small templates over fixed messages. They cover the language's corner cases.
SNIPPETS = [
    "{{ 1 + 2 * 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ 2 ** -1 }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1.5e-7 }} {{ 123456789.125 }} {{ 1e22 }} {{ 0.1 + 0.2 }} {{ 3.0 * 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ true }} {{ False }} {{ none }} {{ None }} {{ 'a' 'b' }} {{ 1_000 }}",
    "{{ [1, 'a', none, true, 1.5, \"it's\"] }} {{ (1,) }} {{ () }} {{ {'a': [1], 'b': {}} }} {{ 1, 2 }}",
    r"{{ 'tab\there\n\x41\u00e9\q\\' }}{{ ['\n\\', '\'', '\x01'] }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' != 'b' }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1} }}",
    "{{ 'ab' in 'cabd' }} {{ 3 not in [1, 2] }} {{ 'role' in messages[0] }} {{ 'x' in undefined_thing }}",
    "{{ 0 or 'x' }} {{ 'y' and 0 }} {{ not '' }} {{ not 1 == 2 }} {{ none or undefined_thing }}",
    "{{ 'yes' if 1 else 'no' }} {{ 'yes' if 0 }}| {{ 'a' if 0 else 'b' if 0 else 'c' }}",
    "{{ 'a' ~ 1 ~ none ~ 2.5 ~ undefined_thing ~ [1] }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] * 2 + [3] }}",
    "{{ messages[1:] | length }} {{ messages[-1].role }} {{ messages[:-1] | length }} {{ 'hello'[1:4] }} {{ 'hello'[::-1] }} {{ 'hello'[::2] }} {{ 'hello'[-2:] }} {{ [1, 2, 3, 4][3:0:-2] }} {{ 'h\u00e9llo'[1] }}",
    "{{ messages[99] }}|{{ messages.nothing }}|{{ messages[0].nothing }}|{{ undefined_thing }}|{{ messages[0]['nothing'] is defined }}",
    "{{ undefined_thing.attribute }}", "{{ undefined_thing + 'a' }}", "{{ undefined_thing() }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}",
    "{{ none | length }}", "{{ 'a'.nothing() }}", "{% for a in 5 %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{{ undefined_thing | tojson }}",
    "{{ undefined_thing | length }}{{ undefined_thing | trim }}{{ undefined_thing | default('d') }}{{ '' | default('e', true) }}{{ '' | d('f') }}{{ undefined_thing | join }}",
    "{% for x in undefined_thing %}x{% else %}none{% endfor %}",
    "{% for x in [3, 1, 2] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index }}:{{ x }} of {{ loop.length }} {% else %}none{% endfor %}",
    "{% for k, v in {'b': 1, 'A': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for k, v in {'b': 1, 'A': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}{% for k in {'b': 1} %}{{ k }}{% endfor %}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in 'h\u00e9y' %}{{ x }},{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [1, 2] %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set ns = namespace(c=1, d='x') %}{% for i in [1, 2] %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{{ ns.d }}{{ ns.e }}{{ ns['c'] }}",
    "{% set x %} a {{ 1 }} {% endset %}[{{ x }}][{{ x | trim }}]",
    "{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 2, c=3) }}{{ m(b=5) }}{{ m('x') | upper }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{{ '  a b  ' | trim }}|{{ '  a b  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ '\u00a0\u3000a\u2003' | trim }}|{{ 'xaxx' | trim('x') }}",
    "{{ 'aXb' | upper }} {{ 'aXb' | lower }} {{ 'hello wORLD-foo (bar' | title }} {{ 'hELLO' | capitalize }} {{ \"they're bill's\".title() }} {{ 'ab'.upper() }} {{ 'ab cd'.capitalize() }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'aXa'.replace('a', 'bb') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'aaa' | replace('a', 'c', 1) }} {{ 'ab'.replace('', '-') }} {{ ','.join(['a', 'b']) }} {{ 'abcb'.find('b') }} {{ 'abcb'.count('b') }} {{ 'pre-x'.removeprefix('pre-') }} {{ '12'.isdigit() }}",
    "{{ [1, 2] | join('-') }} {{ messages | join(',', attribute='role') }} {{ 'abc' | join('.') }} {{ [1, 2] | first }} {{ 'abc' | last }} {{ [] | first }} {{ [1, [2]] | string }} {{ '42' | int + 1 }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 'abc' | list }} {{ -3 | abs }} {{ 'a' | safe }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | list | length }} {{ [0, 1, '', 'a'] | select | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ [1, 2, 3] | reverse | list }} {{ 'abc' | reverse }} {{ messages | selectattr('name') | list }} {{ messages | map(attribute='name', default='anon') | join(',') }}",
    "{{ {'b': [1, 2.0, none, true], 'a': 'x\"\\\\\\n<&>\u00e9\U0001F600\\x01'} | tojson }} {{ {'b': [1, {}], 'a': []} | tojson(indent=2) }} {{ 'a\u00e9\U0001F600' | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ {1: 2, none: 3} | tojson }}",
    "{{ 1 is defined }}{{ x is undefined }}{{ none is none }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ 1 is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is float }}{{ [] is sequence }}{{ 'a' is sequence }}{{ {} is sequence }}{{ true is boolean }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 1 is eq 1 }}{{ 2 is equalto(2) }}{{ 3 is gt 2 }}{{ 3 is divisibleby 3 }}{{ 2 is even }}{{ 'a' is in ['a'] }}{{ 1 is not none }}{{ not x is defined }}{{ range is callable }}{{ {}.items() is sequence }}",
    "{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b', 'z') }}{{ {'a': 1, 'b': 2}.keys() | list }}{{ {'a': 1}.values() | list }}{{ {'items': 5}['items'] }}{{ {'a': {'b': [1, 2]}}.a.b[1] }}{{ {'a': 1} | items | list }}{{ dict(a=1).a }}{{ {'a': 1, 'a': 2} }}",
    "{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ 'x' if messages | selectattr('role', 'eq', 'nobody') else 'y' }}{{ range(3) | list }}",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n  {# comment #}\nd {% if true %} e {% endif %}\n\nf\n",
    "a  {%- if true -%}  b  {%- endif -%}  c {{- 'd' -}} e {#- f -#} g\n  {%+ if true %}\nh{% endif +%}\ni",
    "{% raw %}{{ not }} {% a %}{% endraw %}\n x\n  {%- raw -%}  {{ y }}  {%- endraw -%}  z",
    "a\r\nb\rc{% if true %}\r\nd{% endif %}\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{'b':1}}}}",
    "{{ -1 | abs }} {{ - 1 + 2 }} {{ +1 }} {{ not not 1 }} {{ (1, 2)[0] }} {{ messages.0.role }} {{ 'a' ~ 'b' | upper }} {{ ('a' ~ 'b') | upper }} {{ 1 + 1 ~ 2 }}",
    "{{ raise_exception('no') }}", "{% if false %}{{ raise_exception('no') }}{% endif %}ok", "{{ strftime_now('%Y-%m-%d %H:%M:%S %b %A %j %%') }}",
    "{% set x = messages %}{% set messages = [] %}{{ x | length }}{{ messages | length }}",
    "{% if messages[0].role == 'user' and messages[0].content %}A{% elif 1 %}B{% else %}C{% endif %}{% if 0 %}{% elif 0 %}{% else %}D{% endif %}",
    "{{ messages[0]['content'].split('\\n')[0] }}{{ messages[0].content | length }}{{ messages[0] | tojson }}{{ messages[1].name }}",
    "{% generation %}{{ 1 }}{% set z = 2 %}{% endgeneration %}{{ z }}",
    "{{ '%s' | length }}{{ ''.join([]) }}{{ [] | join }}{{ '' | trim | length }}{{ ('a', 'b') | tojson }}{{ [undefined_thing] }}",
    "{{ true + 1 }}{{ 10 ** 2 }}{{ 5 // 2.0 }}{{ 1 if [] else 2 }}{{ 2 - -2 }}{{ 4 / 2 }}{{ 0x10 if false else 3 }}",
]

FIXED_MESSAGES = [
    {"role": "user", "content": "Hi <|im_end|>\nthere"},
    {"role": "assistant", "content": "Hello", "name": "bot"},
    {"role": "user", "content": ""},
]

WORDS = ["hello", "The", "world", "42", "<|im_start|>", "<|im_end|>", "<|im_start|>system\n", "</s>", "<|eot_id|>", "[INST]", "[/INST]", "<think>",
         "</think>", "<start_of_turn>", "{{ x }}", "{% if %}", "{#", "'", '"', "\\", "\n", "\n\n", "\t", "\r\n", "é", "e\u0301", "日本語", "مرحبا", "👩‍👩‍👧", "🇫🇷", "\u00a0",
         "\u2028", "\u3000", "\x00", "\x1f", "\x7f", "ß", "İ", "&<>", "%s", "{0}", "\ufeff", "…", "```py\nprint('x')\n```", "<tool_response>", "</tool_response>"]


def random_content(rng):
    kind = rng.random()
    if kind < 0.06:
        return ""
    if kind < 0.1:
        return rng.choice([" ", "\n", " \n\t ", "\u00a0", "<|im_end|>"])
    text = rng.choice(["", " ", "\n"]) if rng.random() < 0.2 else ""
    return text + rng.choice(["", " ", " "]).join(rng.choice(WORDS) for _ in range(rng.randint(1, 5)))


def random_messages(rng):
    messages = []
    style = rng.random()
    if style < 0.4:
        messages.append({"role": "system", "content": random_content(rng)})
    if style < 0.8:
        for i in range(rng.randint(1, 5)):
            messages.append({"role": "user" if i % 2 == 0 else "assistant", "content": random_content(rng)})
    else:
        roles = ["system", "user", "assistant", "tool", "developer"]
        messages += [{"role": rng.choice(roles), "content": random_content(rng)} for _ in range(rng.randint(1, 5))]
    for message in messages:
        if rng.random() < 0.05:
            message["name"] = rng.choice(["ann", "Ünal", "<|im_end|>"])
    return messages


class Generation(jinja2.ext.Extension):
    """Implements {% generation %} as transformers does."""
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(lineno)

    def _same(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(template, messages, variables):
    try:
        return template.render(messages=messages, tools=None, documents=None, bos_token="<bos>", eos_token="<eos>", **variables)
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError):
        return None


def smollm2_template(path):
    import gguf
    return gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.path.expanduser("~/.cache/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--conversations", type=int, default=520)
    parser.add_argument("--seed", type=int, default=20261105)
    parser.add_argument("--out", default=os.path.join(here, "..", "testdata", "chat_template_golden.json"))
    args = parser.parse_args()

    env = environment()
    sources = {"smollm2": smollm2_template(args.model), **TEMPLATES}
    compiled = {name: env.from_string(source) for name, source in sources.items()}
    rng = random.Random(args.seed)
    names = list(sources)
    conversations = []
    for i in range(args.conversations):
        # Every second conversation uses the model's own template.
        name = "smollm2" if i % 2 == 0 else names[1 + (i // 2) % (len(names) - 1)]
        messages = random_messages(rng)
        variables = {"add_generation_prompt": rng.random() < 0.5}
        if rng.random() < 0.2:
            variables["enable_thinking"] = rng.random() < 0.5
        conversations.append({"template": name, "messages": messages, "variables": variables,
                              "expected": render(compiled[name], messages, variables)})
    snippets = [{"source": source, "expected": render(env.from_string(source), FIXED_MESSAGES, {})} for source in SNIPPETS]
    golden = {"jinja2": jinja2.__version__, "seed": args.seed, "templates": sources, "snippet_messages": FIXED_MESSAGES,
              "snippets": snippets, "conversations": conversations}
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump(golden, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    failing = sum(c["expected"] is None for c in conversations)
    print(f"{len(conversations)} conversations ({failing} refused by their template), {len(snippets)} snippets, jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
