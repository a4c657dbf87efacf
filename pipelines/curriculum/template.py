"""The chat format as a Jinja template, for everybody who does not use our renderer.

`chat_template(form)` writes calls as XML or JSON unless `apply_chat_template(tool_call_format=…)` says otherwise;
`CHAT_TEMPLATE` is the one with XML. It gives the same characters as `pipelines.synthesis.chat.render_messages`, for
the dicts that `template_messages` makes (the form of Hugging Face `apply_chat_template`). It is written into every
tokenizer folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.synthesis.chat import CALL_FORMS, TOOLS_EXAMPLES, TOOLS_INTRO, TOOLS_OUTRO, call_arguments
from schemas.trajectory import Message

__all__ = ["CHAT_TEMPLATE", "chat_template", "form_of", "template_messages"]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")


_TEMPLATE = (
    r"""
{%- set form = tool_call_format | default('@FORM@') -%}
{%- macro tool_list(content) -%}
    {{- content + ('\n\n' if content else '') + '@INTRO@<tools>' -}}
    {%- if tools is string -%}
        {{- '\n' + tools -}}
    {%- else -%}
        {%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
    {%- endif -%}
    {{- '\n</tools>@OUTRO@<tool_call>' + ('@JSON@' if form == 'json' else '@XML@') + '</tool_call>' -}}
{%- endmacro -%}
{%- if tools and (not messages or messages[0].role != 'system') -%}
    {{- '<|im_start|>system\n' + tool_list('') + '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- if message.role == 'system' -%}
        {{- '<|im_start|>system\n' + (tool_list(content) if tools and loop.first else content) + '<|im_end|>\n' -}}
    {%- elif message.role == 'user' -%}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {{- ('<|im_start|>user\n' if loop.first or messages[loop.index0 - 1].role != 'tool' else '\n') -}}
        {{- '<tool_response>\n' + content + '\n</tool_response>' -}}
        {{- '<|im_end|>\n' if loop.last or messages[loop.index0 + 1].role != 'tool' else '' -}}
    {%- elif message.role == 'assistant' -%}
        {%- set reasoning = '' -%}
        {%- if message.reasoning_content is string -%}
            {%- set reasoning = message.reasoning_content -%}
        {%- elif '</think>' in content or '<think>' in content -%}
            {%- set head = content.split('</think>')[0] -%}
            {%- set lead = head.split('<think>')[0] if '<think>' in head else '' -%}
            {%- if not lead.strip() -%}
                {%- set reasoning = (head[(lead | length) + 7:] if '<think>' in head else head).strip('\n') -%}
                {%- set content = content[(head | length) + 8:].lstrip('\n') -%}
            {%- endif -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\n<think>\n' + reasoning + '\n</think>\n\n' + content -}}
        {%- for call in message.tool_calls or [] -%}
            {%- set function = call.function if call.function else call -%}
            {{- ('\n' if content or not loop.first else '') + '<tool_call>\n' -}}
            {%- if form == 'json' -%}
                {{- '{"name": ' + (function.name | tojson) + ', "arguments": ' -}}
                {{- ((function.arguments | tojson) if function.arguments is mapping else (function.arguments or '')) -}}
                {{- '}\n' -}}
            {%- elif function.arguments is mapping -%}
                {{- '<function=' + function.name + '>\n' -}}
                {%- for name, value in function.arguments.items() -%}
                    {{- '<parameter=' + name + '>\n' -}}
                    {{- (value if value is string else (value | tojson)) + '\n</parameter>\n' -}}
                {%- endfor -%}
                {{- '</function>\n' -}}
            {%- else -%}
                {{- '<function=' + function.name + '>\n' + (function.arguments or '') + '\n</function>\n' -}}
            {%- endif -%}
            {{- '</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- else -%}
        {{- raise_exception('role ' + message.role + ' has no place in the chat format') -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if enable_thinking is defined and not enable_thinking -%}
        {{- '<think>\n\n</think>\n\n' -}}
    {%- endif -%}
{%- endif -%}
""".strip()
    .replace("@INTRO@", _quoted(TOOLS_INTRO))
    .replace("@OUTRO@", _quoted(TOOLS_OUTRO))
    .replace("@XML@", _quoted(TOOLS_EXAMPLES["xml"]))
    .replace("@JSON@", _quoted(TOOLS_EXAMPLES["json"]))
)


def chat_template(form: str) -> str:
    """The template whose calls are written in `form`, one of CALL_FORMS."""
    return _TEMPLATE.replace("@FORM@", form)


def form_of(template: str) -> str | None:
    """The form of calls of one of our own templates; None for anybody else's."""
    return next((form for form in CALL_FORMS if chat_template(form) == template.strip()), None)


CHAT_TEMPLATE = chat_template("xml")


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as `apply_chat_template` takes them.

    Arguments become dicts where they are JSON objects, so that a template can walk them; else they stay text.
    Keys that a message does not use are left out: templates test for their presence.
    """
    return [_template_message(message) for message in messages]


def _template_message(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": call_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        made["name"] = message.name
    return made
