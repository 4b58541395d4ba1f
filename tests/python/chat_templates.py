"""Material for the Jinja tests: small templates of our own in the formats that models use, conversations to render
with them, and templates that try one corner of the language each."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a place, \"now\" & <here>.",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Name — e.g. Zürich"},
            "days": {"type": "integer", "default": 1, "enum": [1, 2.5, 1e16, None, True]},
            "units": {"type": ["string", "null"], "items": {"type": "number"}}}}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object",
                                                                                       "properties": {}}}},
]
CALL = {"id": "call12345", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "東京", "days": 2, "deep": {"a": [1, None]}}}}


def contexts():
    """Conversations: plain, with and without system, tools, parts, odd content; as dicts for the template."""
    user, assistant = {"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello!"}
    system = {"role": "system", "content": "  Be brief.\n"}
    parts = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image"},
                                         {"type": "text", "text": "🙂 and é"}]}
    tool_round = [
        user, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"t\": 3.5}"}]
    two_tools = [
        user, {"role": "assistant", "content": "", "tool_calls": [CALL, dict(CALL, id="call67890")]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "sun"},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call67890", "content": "rain"},
        {"role": "assistant", "content": "Both."}, user]
    conversations = [
        [user], [system, user], [user, assistant, user], [system, user, assistant, user, assistant],
        [user, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, user],
        [user, {"role": "assistant", "content": "Yes.", "reasoning_content": "because"}, user],
        tool_round, [system] + tool_round + [assistant], two_tools, [parts], [system, parts, assistant],
        [{"role": "user", "content": "line\n\n  indented {{ not }} {% code %} 'quotes' \"too\" \\n"}], [], [system],
        [assistant, user], [user, user], [{"role": "weird", "content": "x"}],
        [{"role": "user", "content": ""}, {"role": "assistant", "content": "   spaces   "}, {"role": "user", "content": "日本"}],
    ]
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    result = []
    for messages in conversations:
        for prompt in (False, True):
            base = {"messages": messages, "add_generation_prompt": prompt, "tools": None, "documents": None, **tokens}
            result.append(base)
            result.append({**base, "tools": TOOLS})
    base = result[2]
    result += [{**base, "enable_thinking": False}, {**base, "enable_thinking": True},
               {**base, "tools": TOOLS, "date_string": "1 Jan 2025", "tools_in_user_message": False},
               {**base, "documents": [{"title": "A", "text": "B", "content": "C"}], "builtin_tools": ["search"]},
               {k: v for k, v in base.items() if k not in ("tools", "documents")}]
    return result


_CHATML = ("{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
           "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}")

TEMPLATES = {
    "chatml": _CHATML,
    "chatml-default-system": "{% if not messages or messages[0].role != 'system' %}<|im_start|>system\nDefault<|im_end|>\n"
                             "{% endif %}" + _CHATML,
    "smollm": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
              "{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n'"
              " + (message['content'] or '')|string + '<|im_end|>' + '\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "llama2": """{% if messages[0]['role'] == 'system' %}
    {% set loop_messages = messages[1:] %}
    {% set system_message = messages[0]['content'].strip() %}
{% else %}
    {% set loop_messages = messages %}
    {% set system_message = false %}
{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must alternate user/assistant/user') }}
    {% endif %}
    {% if loop.index0 == 0 and system_message != false %}
        {% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
    {% else %}
        {% set content = message['content'] %}
    {% endif %}
    {% if message['role'] == 'user' %}
        {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
        {{ ' ' + content.strip() + ' ' + eos_token }}
    {% endif %}
{% endfor %}""",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' +"
              " message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 =="
              " 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama31-tools": """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{#- The system message is cut off so that it can be put elsewhere. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("Only single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "mistral": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
               "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
               "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
               "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
               "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "mistral-tools": """{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}{{- raise_exception("must alternate") }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("ids must have 9 letters") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"] + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS]{"content": ' + content|string + ", " }}{{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
""",
    "qwen25-tools": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are helpful.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    "qwen3-thinking": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
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
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
             "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}"
             "{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n'"
             " + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
             "{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}
    {%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""",
    "phi3": "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + "
            "message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + "
            "'<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}"
            "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "phi4": "{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + "
            "message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + "
            "message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'"
            " + message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}"
            "{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "phi4-mini": "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] "
                 "is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + "
                 "'<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
                 "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}",
    "deepseek-r1": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = "
                   "namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in "
                   "messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif "
                   "%}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == "
                   "'user' %}{%- set ns.is_tool = false -%}{{'<|User|>' + message['content']}}{%- endif %}{%- if "
                   "message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for "
                   "tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<|calls|>' + tool['type'] + '<|sep|>' + "
                   "tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments']|tojson + '\n' + '```'}}"
                   "{%- set ns.is_first = true -%}{%- else %}{{'\n' + tool['type']}}{%- endif %}{%- endfor %}{%- endif %}{%- if "
                   "message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] "
                   "%}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
                   "{{'<|Assistant|>' + content + '<|eos|>'}}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool "
                   "= true -%}{%- if ns.is_output_first %}{{'<|outputs|>' + message['content']}}{%- set ns.is_output_first = "
                   "false %}{%- else %}{{'\n<|output|>' + message['content']}}{%- endif %}{%- endif %}{%- endfor -%}{% if "
                   "ns.is_tool %}{{'<|outputs_end|>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}"
                   "{{'<|Assistant|><think>\n'}}{% endif %}",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
              "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n"
              "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "command-r": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set "
                 "system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message "
                 "= 'Default.' %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + "
                 "system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in loop_messages %}{% set content = "
                 "message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + "
                 "content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}"
                 "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
    "command-r-tools": """{%- macro json_to_python_type(param_name, json_spec) %}
{%- set basic_type_map = {'string': 'str', 'number': 'float', 'integer': 'int', 'boolean': 'bool'} %}
{%- if basic_type_map[json_spec.type] is defined %}
{{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == 'array' %}
{{- 'List[' +  json_to_python_type(param_name, json_spec['items']) + ']'}}
{%- elif json_spec.type is iterable %}
{{- 'Union[' }}
{%- for t in json_spec.type %}{{- json_to_python_type(param_name, {'type': t}) }}{%- if not loop.last %}{{- ',' }}{%- endif %}{%- endfor %}
{{- ']' }}
{%- else %}
{{- 'Any' }}
{%- endif %}
{%- endmacro %}
{%- macro signature(tool, indent=4) -%}
def {{ tool.name }}({% for name, spec in tool.parameters.properties.items() %}{{ name }}: {{ json_to_python_type(name, spec) }}{{ ', ' if not loop.last }}{% endfor %}):
    \"\"\"{{ tool.description }}
{% for name, spec in tool.parameters.properties|dictsort %}
{{ ' ' * indent }}{{ name }} ({{ json_to_python_type(name, spec) }}{{ ', optional' if name not in tool.parameters.required }})
{% endfor %}{{ ' ' * indent }}\"\"\"
{%- endmacro %}
{{ bos_token }}{% for tool in tools or [] %}
{{ signature(tool.function, indent=8 if loop.first else 2) }}
{% endfor %}
{% for message in messages %}{{ message.role | upper }}: {{ message.content | default('(none)', true) | string | trim }}
{% endfor %}""",
    "granite": "{% for message in messages %}{{ '<|start_of_role|>' ~ message['role'] ~ '<|end_of_role|>' ~ message['content'] "
               "~ '<|end_of_text|>\n' }}{% if loop.last and add_generation_prompt %}"
               "{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}{% endfor %}",
    "granite-tools": """{%- if tools %}
    {{- '<|start_of_role|>available_tools<|end_of_role|>\n' }}
    {%- for tool in tools %}
    {{- tool | tojson(indent=4) }}
    {%- if not loop.last %}
        {{- '\n\n' }}
    {%- endif %}
    {%- endfor %}
    {{- '<|end_of_text|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'assistant_tool_call' or (message['role'] == 'assistant' and message.tool_calls is defined and message.tool_calls) %}
    {{- '<|start_of_role|>assistant<|end_of_role|><|tool_call|>' + message['tool_calls']|tojson(indent=4) + '<|end_of_text|>\n' }}
    {%- else %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content']|string + '<|end_of_text|>\n' }}
    {%- endif %}
    {%- if loop.last and add_generation_prompt %}
    {{- '<|start_of_role|>assistant<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}""",
    "vicuna": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{{ messages[0]['content'].strip()"
              " + '\n\n' }}{% else %}{% set loop_messages = messages %}{% endif %}{{ bos_token }}{% for message in "
              "loop_messages %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'].strip() + '\n' }}{% elif "
              "message['role'] == 'assistant' %}{{ 'ASSISTANT: ' + message['content'].strip() + eos_token + '\n' }}{% endif %}"
              "{% if loop.last and message['role'] == 'user' and add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
              "{% endfor %}",
    "alpaca": "{% for message in messages %}{% if message.role == 'user' %}### Instruction:\n{{ message.content|trim }}\n\n"
              "{% elif message.role == 'assistant' %}### Response:\n{{ message.content|trim }}{{ eos_token }}\n\n{% endif %}"
              "{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}",
    "falcon": "{% for message in messages %}{% if not loop.first %}{{ '\n\n' }}{% endif %}{{ message.role | capitalize }}: "
              "{{ (message.content or '') | string | replace('\r\n', '\n') | replace('\n\n', '\n') | trim }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '\n\nAssistant:' }}{% endif %}",
    "openchat": "{{ bos_token }}{% for message in messages %}{{ 'GPT4 Correct ' + message['role'].title() + ': ' + "
                "message['content'] + '<|end_of_turn|>'}}{% endfor %}{% if add_generation_prompt %}"
                "{{ 'GPT4 Correct Assistant:' }}{% endif %}",
    "chatglm": "[gMASK]<sop>{% for item in messages %}{% if item['tools'] is defined and item['role'] == 'system' %}<|system|>\n"
               "{% set tools = item['tools'] %}{% endif %}<|{{ item['role'] }}|>{{ item['metadata'] }}\n"
               "{{ item['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "hermes-functions": """{%- macro render(spec, depth=0) -%}
    {%- if depth > 4 -%}...{%- elif spec is mapping -%}
        { {%- for k, v in spec|dictsort %}{{ k }}={{ render(v, depth + 1) }}{{ "; " if not loop.last else "" }}{%- endfor -%} }
    {%- elif spec is string -%}"{{ spec }}"{%- elif spec is iterable -%}
        [{%- for v in spec %}{{ render(v, depth=depth + 1) }}{{ ", " if not loop.last else "" }}{%- endfor -%}]
    {%- else -%}{{ spec }}{%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}{{ render(tool) }}
{% endfor -%}
{%- for message in messages %}{{ message.role }}|{{ render(message.content) }}
{% endfor %}""",
    "generation-mask": "{% for m in messages %}{% if m.role == 'assistant' %}<a>{% generation %}{% set x = 1 %}{{ m.content }}"
                       "{{ eos_token }}{% endgeneration %}{{ x is defined }}{% else %}<{{ m.role }}>{{ m.content }}{% endif %}"
                       "\n{% endfor %}",
    "harmony": """{%- macro render_type(spec) -%}
    {%- if spec.type == "array" -%}{{ render_type(spec['items']) }}[]
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}
        {{ spec.type | join(" | ") }}
    {%- elif spec.enum -%}{{ '"' + spec.enum|join('" | "') + '"' }}
    {%- else -%}{{ spec.type|default("any") }}{%- endif -%}
{%- endmacro -%}
<|start|>system<|message|>date: {{ strftime_now("%Y") }}<|end|>
{%- if tools %}
namespace functions {
{%- for tool in tools %}{%- set tool = tool.function %}
type {{ tool.name }} = (_: {
{%- for name, spec in tool.parameters.properties.items() %}
  {{ name }}{{ "?" if name not in (tool.parameters.required or []) }}: {{ render_type(spec) }},
{%- if spec.default is defined %} // default: {{ spec.default }}{% endif %}
{%- endfor %}
}) => any;
{%- endfor %}
}
{%- endif %}
{%- for message in messages -%}
    {%- if loop.last and message.role == 'assistant' -%}{%- continue -%}{%- endif -%}
    {%- if message.role == 'weird' -%}{%- break -%}{%- endif -%}
    <|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}""",
    "parts-and-join": "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
                      "{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\n') }}"
                      "{{ m.content | selectattr('type', 'ne', 'text') | list | length }}{% endif %}\n{% else %}none"
                      "{% endfor %}",
}

LANGUAGE_CONTEXT = {
    "x": 5, "f": 2.5, "s": "Hello World", "t": True, "n": None, "l": [1, 2, 3], "d": {"a": 1, "b": "two", "c": [3]},
    "words": ["banana", "Apple", "cherry", "apple"], "empty": [], "nested": [[1, 2], [3, [4]]],
    "people": [{"name": "Ann", "age": 30, "tags": {"x": 1}}, {"name": "bob", "age": 25, "tags": {"x": 2}},
               {"name": "Cid", "age": 30, "tags": {"x": 0}}], "u": "naïve ÉCOLE 日本 🙂", "q": "it's \"q\"",
}


def language_cases():
    return [
        # white space
        "a\n{% if t %}\n  b\n{% endif %}\nc\n", "  {% if t %}x{% endif %}  \n", "{%- if t -%} x {%- endif -%} y",
        "a  {{- 1 -}}  b", "a\n  {# note #}\n b", "a {#- note -#} b", "x\n   {%+ if t %}y{% endif +%}\nz", "{{ 1 }}\n",
        "{{ 1 }}\n\n", "a\r\nb\rc", "\n{% set a = 1 %}\n\n{{ a }}", "{% for i in l %}\n{{ i }}\n{% endfor %}\n!",
        "{% for i in l -%}\n  {{ i }}\n{%- endfor %}", "  {{ x }}  {% set y=1 %}  {{ y }}", "a {%- raw %} {{ x }} {% endraw -%} b",
        "{% raw %}\n{% if %}{{ }}\n{% endraw %}\nx", "\t{% if t %}\n\t\tq\n\t{% endif %}\n", "{{ '}}' }}{{ \"{%\" }}",
        "x{#+ keep #}y", "{% if t %}{# a\nb #}\n{% endif %}z", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}['a']['b'] }}",
        "line\n    {{ x }}\nend", "{%if t%}a{%endif%}", "{{- 'a' }}\n{{- 'b' }}\n", "x {%- if t +%}\ny{% endif %}",
        # literals
        "{{ 'a\\nb\\t\\x41\\u00e9\\\\' }}", "{{ 'a' 'b' \"c\" }}", "{{ 1_000 }} {{ 0x1F }} {{ 1.5e3 }} {{ 1e-7 }} {{ .5 }}",
        "{{ 1.0 }} {{ 100000000000000000.0 }} {{ 1e16 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 5e-324 }}",
        "{{ [1, 2,] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ {} }} {{ {'a': 1,} }} {{ {1: 2, none: 3, true: 4} }}",
        "{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}", "{{ 'it\\'s' }} {{ [\"it's\", 'a\"b', 'both\\'\"'] }}",
        "{{ ['é', '\\n', '\\x00', '\\u200b', '🙂'] }}", "{{ 1, 2 }}", "{{ -x }} {{ +x }} {{ - -x }} {{ -f }}", "{{ 'x' * 3 }}",
        "{{ [0] * 2 }}", "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }}"
        " {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 3 }}", "{{ 1 ~ 2 + 3 }}", "{{ 'a' ~ 1 ~ none ~ true ~ missing }}",
        "{{ 1 + 2 * 3 - 4 / 2 }}", "{{ '%s-%05.1f-%d' % ('a', 2.25, 7) }} {{ '%r' % 'a' }} {{ '100%%' % () }}",
        "{{ 9223372036854775807 }}", "{{ l + [4] }} {{ (1,) + (2,) }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}",
        # comparison and logic
        "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ true == 1 }}",
        "{{ 1 < 'a' }}", "{{ x in l }} {{ 2 in l }} {{ 'ell' in s }} {{ 'a' in d }} {{ 9 not in l }} {{ 1 in missing }}",
        "{{ 1 in s }}", "{{ not x }} {{ not not x }} {{ x and n }} {{ n or 'z' }} {{ 0 or [] or 'q' }} {{ missing or 1 }}",
        "{{ not x == 5 }}", "{{ 'a' if n else 'b' if t else 'c' }}", "{{ 'a' if n }}", "{{ ('a' if n) is defined }}",
        "{{ missing == missing2 }} {{ missing == n }} {{ n == none }} {{ l == [1,2,3] }} {{ d == {'a':1,'b':'two','c':[3]} }}",
        # attributes, items, slices
        "{{ d.a }} {{ d['b'] }} {{ d.c[0] }} {{ d.zzz }} {{ d['zzz'] }}", "{{ l.0 }} {{ l[-1] }} {{ l[9] }} {{ l['x'] }}",
        "{{ s[0] }} {{ s[-1] }} {{ s[99] }} {{ u[-1] }} {{ u[6] }}", "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }}"
        " {{ s[1:4] }} {{ u[::-1] }} {{ l[5:1:-2] }} {{ s[-3:] }} {{ (1,2,3)[1:] }}", "{{ d.items() | list }}", "{{ d.missing.x }}",
        "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ n.x }}", "{{ x.y }} {{ x.y is defined }}", "{{ d.items }}"
        "" if False else "{{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 7) }}", "{{ nested[1][1][0] }}", "{{ l[::0] }}",
        "{{ people[0].tags.x }} {{ people[0]['tags']['x'] }}", "{{ d.keys() | list }} {{ d.values() | list }}",
        # undefined
        "{{ missing }}|{{ missing is defined }}|{{ missing | default('D') }}|{{ n | default('D') }}|{{ n | default('D', true) }}",
        "{{ missing | length }} {{ missing | list }} {{ missing | join(',') }} {{ missing | string }}", "{{ missing | upper }}",
        "{{ missing + 1 }}", "{{ missing < 1 }}", "{{ -missing }}", "{% for i in missing %}x{% else %}none{% endfor %}",
        "{{ missing | tojson }}", "{{ missing | int }}", "{{ missing is iterable }} {{ missing is sequence }} {{ missing is none }}",
        "{{ missing[0] }}", "{{ [missing] }}", "{{ missing | first }}", "{{ missing | trim }}|", "{{ missing | items | list }}",
        # statements
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
        "{% for c in s %}{{ c }}.{% endfor %}", "{% for i in l if i != 2 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}",
        "{% for i in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.depth }}"
        "[{{ loop.previtem }}{{ loop.nextitem }}] {% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2)"
        " }}{% endfor %}", "{% for i in empty %}x{% else %}empty{% endfor %}", "{% for a, (b) in [(1, 2), (3, 4)] %}{{ a }}{{ b }}"
        "{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for i in x %}{% endfor %}", "{% for i in l %}{% for j in l %}"
        "{{ loop.index * i }} {% endfor %}{{ loop.index }}{% endfor %}", "{% for i in range(5) %}{% if i == 1 %}{% continue %}"
        "{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in nested recursive %}{% if i is iterable"
        " %}<{{ loop(i) }}>{% else %}{{ i }}d{{ loop.depth }}{% endif %}{% endfor %}", "{% for i in l, x %}{{ i }}{% endfor %}",
        "{% set a = 1 %}{% for i in l %}{{ a }}{% set a = a + i %}{% endfor %}{{ a }}", "{% if t %}{% set a = 9 %}{% endif %}{{ a }}",
        "{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}"
        "{{ ns.a }} {{ ns.b }} {{ ns.zz }} {{ ns.a is defined }}", "{% set d.a = 1 %}", "{% set ns = namespace({'k': 1}, j=2) %}"
        "{{ ns.k }}{{ ns['j'] }}", "{% set ns = namespace(_a=1) %}x" if False else "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
        "{% set a %}x{{ x }}\n{% endset %}[{{ a }}]", "{% set a | upper | trim %} x{{ x }} {% endset %}[{{ a }}]",
        "{% set a = 1, 2 %}{{ a }}", "{% set loop = 3 %}{{ loop }}", "{% if n %}a{% elif x == 4 %}b{% elif x == 5 %}c{% else %}d"
        "{% endif %}", "{% if x == 5 and (l or n) %}y{% endif %}", "{% filter upper %}abc{{ s }}{% endfilter %}",
        "{% filter replace('l', 'L') | trim %} {{ s }} {% endfilter %}", "{% with a = 1, b = x %}{{ a }}{{ b }}{% endwith %}{{ a }}",
        "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(b=1, a=0) }} {{ m() }}"
        if False else "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, b=3) }} {{ m(b=1, a=0) }} {{ m() }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
        "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
        "{% macro m() %}<{{ caller('q') }}>{% endmacro %}{% call(z) m() %}{{ z }}{{ x }}{% endcall %}",
        "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m() %}{{ x }}"
        "{% set x = 7 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{{ m(1) }}{% macro m(a) %}{% endmacro %}",
        "{% macro m() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ m() }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}"
        "{% endfor %}", "{% macro m() %} a {% endmacro %}[{{ m() | trim }}] {{ m() ~ 'b' }} {{ m().strip() }}",
        "{% generation %}a{{ x }}{% endgeneration %}", "{% for i in l %}{% generation %}{{ loop.index }}{% endgeneration %}{% endfor %}",
        # tests
        "{{ x is number }} {{ x is integer }} {{ f is float }} {{ s is string }} {{ t is boolean }} {{ d is mapping }} {{ l is iterable }}"
        " {{ s is iterable }} {{ l is sequence }} {{ d is sequence }} {{ n is none }} {{ t is true }} {{ t is number }} {{ x is callable }}"
        " {{ t is integer }} {{ (1,) is sequence }} {{ x is float }}", "{{ x is odd }} {{ x is even }} {{ x is divisibleby 5 }} {{ x is"
        " divisibleby(2) }}", "{{ x is eq 5 }} {{ x is ne 5 }} {{ x is gt 3 }} {{ x is lt(3) }} {{ x is ge 5 }} {{ x is equalto(5) }} {{ x"
        " is in [5] }} {{ x is sameas n }} {{ x is not in l }} {{ n is sameas none }}", "{{ s is upper }} {{ 'AB' is upper }} {{ 'ab' is"
        " lower }} {{ 'x' is filter }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ s is escaped }}", "{{ x is not none and x is"
        " defined }}", "{{ x is defined is true }}", "{{ 'upper' is filter }} {{ x is nosuchtest }}",
        "{{ x is not defined or x }}", "{{ missing is not defined and 'u' }}",
        # filters
        "{{ s | upper }} {{ s | lower }} {{ 'abc def' | title }} {{ \"it's a-b (c)\" | title }} {{ 'aBC' | capitalize }} {{ u | upper }}"
        " {{ u | lower }} {{ u | title }}", "[{{ '  a ' | trim }}] [{{ 'xxaxx' | trim('x') }}]", "{{ s | replace('o', '0') }} {{ s |"
        " replace('o', '0', 1) }} {{ 'aaa' | replace('', '-') }}", "{{ l | join }} {{ l | join(', ') }} {{ people | join('|', attribute="
        "'name') }} {{ s | join('.') }}", "{{ l | first }} {{ l | last }} {{ s | first }} {{ empty | first }} {{ empty | last is defined }}",
        "{{ l | length }} {{ s | length }} {{ d | count }} {{ u | length }}", "{{ 5 | length }}", "{{ s | list }} {{ d | list }}",
        "{{ '42' | int }} {{ '4.9' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '0x1f' | int(base=16) }} {{ f | int }} {{ -2.5 | int }}"
        " {{ ' 7 ' | int }} {{ n | int if false }}", "{{ '1.5' | float }} {{ 'x' | float }} {{ x | float }} {{ '1e3' | float }}",
        "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ 7 |"
        " round }} {{ 0.125 | round(2) }}", "{{ -3 | abs }} {{ -2.5 | abs }}", "{{ words | sort }} {{ words | sort(reverse=true) }} {{ words"
        " | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(reverse=true,"
        " attribute='age') | map(attribute='name') | list }}", "{{ [3, 'a'] | sort }}", "{{ words | unique | list }} {{ people | "
        "unique(attribute='age') | map(attribute='name') | list }}", "{{ l | reverse | list }} {{ s | reverse }}", "{{ l | sum }} {{ people |"
        " sum(attribute='age') }} {{ empty | sum }} {{ l | sum(start=10) }}", "{{ l | min }} {{ l | max }} {{ words | max }} {{ people |"
        " max(attribute='age') }}", "{{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }}"
        " {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}", "{{ d | items | list }}", "{{ l | map('string') | list }} {{ words |"
        " map('upper') | join(' ') }} {{ people | map(attribute='tags.x') | list }} {{ people | map(attribute='q', default='-') | list }}"
        " {{ words | map('replace', 'a', 'A') | list }}", "{{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ [0, 1, ''] |"
        " select | list }} {{ l | select('gt', 1) | list }}", "{{ people | selectattr('age', 'gt', 26) | map(attribute='name') | list }}"
        " {{ people | rejectattr('age', 'equalto', 30) | list | length }} {{ people | selectattr('tags.x') | list | length }}",
        "{% if empty | select %}generator{% endif %}", "{{ l | select | length }}", "{{ l | map('nosuchfilter') | list }}",
        "{{ d | tojson }} {{ nested | tojson }} {{ q | tojson }} {{ u | tojson }} {{ f | tojson }} {{ n | tojson }} {{ '<&>' | tojson }}",
        "{{ d | tojson(indent=2) }}", "{{ nested | tojson(indent=1) }} {{ {} | tojson(indent=2) }} {{ [] | tojson(indent=2) }}", "{{ d |"
        " tojson(separators=(',', ':')) }} {{ u | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true) }}",
        "{{ {1: 2, none: 3} | tojson }} {{ (1, 2) | tojson }} {{ '\\x7f\\x01\\u2028' | tojson }}", "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' |"
        " indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\n' | indent(2) }}|{{ '' | indent(2,"
        " true) }}", "{{ '<a b=\"c\">&\\'' | e }} {{ 5 | escape }} {{ s | safe }}", "{{ l | batch(2) | list }} {{ l | batch(2, 0) | list }}"
        " {{ l | slice(2) | list }} {{ l | slice(2, 'x') | list }}", "{% for k, g in people | groupby('age') %}{{ k }}:{{ g | map(attribute="
        "'name') | join(',') }} {% endfor %}", "{{ 'one two  three' | wordcount }} [{{ 'ab' | center(7) }}] {{ 'a long text here' | truncate("
        "9) }} {{ 'a long text here' | truncate(9, true, '..', 0) }} {{ 'a b/ü' | urlencode }}", "{{ '%s %s' | format(1, 'b') }} {{ d | attr('a')"
        " is defined }}", "{{ x | nosuchfilter }}", "{% if false %}{{ x | nosuchfilter }}{% endif %}ok", "{{ s | upper | lower | title }}",
        "{{ (1, 2) | list }} {{ 1 if [] | list else 2 }}", "{{ s | d('x') }} {{ '' | d('x', boolean=true) }}",
        # methods
        "{{ ' a '.strip() }}|{{ 'xax'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|", "{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',')"
        " }} {{ 'a,b,c'.split(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b,c'.rsplit(',', 1) }}"
        " {{ 'abc'.split(sep='b') }}", "{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}", "{{ s.startswith('He') }}"
        " {{ s.endswith(('x', 'ld')) }} {{ s.startswith('W') }}", "{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }}"
        " {{ s.swapcase() }} {{ \"they're bill's\".title() }}", "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }}", "{{ ', '.join("
        "['a', 'b']) }} {{ ''.join(words) }}", "{{ ','.join([1]) }}", "{{ s.find('o') }} {{ s.find('z') }} {{ s.rfind('o') }} {{ u.find('日')"
        " }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }}", "{{ s.index('z') }}", "{{ '12'.isdigit() }} {{ 'a'.isalpha() }}"
        " {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isdigit() }} {{ 'AB'.isupper() }} {{ 'aB'.islower() }}", "{{ '7'.zfill(3) }} {{ '-7'"
        ".zfill(4) }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ 'ab'.center(5, '*') }}", "{{ 'prefix-x'.removeprefix('prefix') }} {{ 'x.py'"
        ".removesuffix('.py') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('z') }}", "{{ l.index(2) }}"
        " {{ l.count(2) }}", "{{ l.append(4) }}", "{{ d.update({'z': 1}) }}", "{{ d.pop('a') }}", "{{ s.nosuch() }}", "{{ d.copy() }} {{ l.copy()"
        " }}", "{{ 'straße ﬁ'.upper() }} {{ 'ΑΣ ΑΣΒ'.lower() }} {{ 'ǆ'.title() }}",
        # functions and errors
        "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }}", "{{ range(200000) | list | length }}", "{{ dict(a=1) }}"
        " {{ dict([('a', 1)]) if false }} {{ dict({'x': 2}, y=3) }}", "{{ raise_exception('stop ' ~ x) }}", "{% if t %}{{ raise_exception('é') }}"
        "{% endif %}", "{{ strftime_now('%Y') }}", "{{ x", "{% if x %}", "{% endif %}", "{{ }}", "{{ 1 + }}", "{% for %}{% endfor %}", "{{ 'a }}",
        "{% set %}", "{{ (1 }}", "{{ [1 }}", "{% nosuch %}", "{{ a b }}", "{# x", "{% raw %}", "{{ x|}}", "{{ x is }}", "{{ 1 is in }}", "{{ ] }}",
        "{% for x in l %}{% endif %}", "{{ {1} }}", "{% macro %}{% endmacro %}", "{{ x.}}", "{{ @ }}", "{{ a = 1 }}", "{{ f() }}", "{{ 'a'() }}",
        "{{ 1[0] }}", "{{ n[0] }}|{{ n[0] is defined }}", "{% set x = x + 1 %}{{ x }}", "{{ lipsum is defined }}" if False else "{{ 1 }}",
        "{{ people | map(attribute='name') | map('lower') | sort | join(' ') }}", "{{ [[1, 2], [3, 4]] | map('last') | list }}",
        "{% for p in people | sort(attribute='name') %}{{ p.name }}{{ ',' if not loop.last }}{% endfor %}",
        "{{ (people | selectattr('name', 'equalto', 'bob') | first).age }}", "{{ people | selectattr('name', 'equalto', 'zz') | first is"
        " defined }}", "{{ s.split(' ')[0][1:3].upper() ~ (l | length - 1) }}", "{{ 'a' if x > 3 else 'b' ~ 'c' }}", "{{ x > 3 and 'yes' or 'no'"
        " }}", "{{ {'a': [1, {'b': (1, none)}]} }}", "{{ not n and not missing }}", "{{ (x, s)[1] }}", "{{ l[x - 5] }}", "{{ d['a' ~ ''] }}",
    ]
