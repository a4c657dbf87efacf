"""Other people's chat templates: the mask equals the message flags for six styles, rewriting templates are caught."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from pipelines.curriculum.foreign import HistoryError
from pipelines.curriculum.render import Rendered
from pipelines.curriculum.renderers import chat_template_of, open_renderer
from pipelines.curriculum.template import CHAT_TEMPLATE
from pipelines.curriculum.thinking import EARLIER_TURN
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.errors import InputError
from schemas.trajectory import Message, ToolCall, Trajectory

# In the manner of widely used public templates, written for these tests.
HEADERS = """{{- bos_token }}{% for m in messages %}
{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}
{%- if m.tool_calls %}{% for c in m.tool_calls %}
{{- '{"name": "' + c.function.name + '", "parameters": ' + (c.function.arguments | tojson) + '}' }}{% endfor %}
{%- else %}{{- m['content'] | trim }}{% endif %}{{- '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
INSTRUCT = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'user' or m.role == 'tool' or m.role == 'system' %}{{ '[INST] ' + m.content + ' [/INST]' }}
{%- else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"""
CHATML_JSON = """{% for m in messages %}
{%- if m.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}{% generation %}{{- m.content }}{% for c in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (c.function | tojson) + '\\n</tool_call>' }}{% endfor %}{{- '<|im_end|>' }}{% endgeneration %}
{{- '\\n' }}
{%- elif m.role == 'tool' %}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
NO_TERMINATOR = """[gMASK]{% for m in messages %}
{%- if m.role == 'tool' %}{{- '<|observation|>\\n' + m.content }}
{%- else %}{{- '<|' + m.role + '|>\\n' + m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{% endif %}"""
OPENS_THINKING = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'assistant' %}{{- '<|Assistant|>' }}
{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content }}{% for c in m.tool_calls or [] %}
{{- '<call>' + c.function.name + ' ' + c.function.arguments }}{% endfor %}
{{- eos_token }}
{%- else %}{{- '<|User|>' + m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|Assistant|><think>\\n' }}{% endif %}"""
FORGETS_THINKING = """{% set ns = namespace(last=-1) %}{% for m in messages %}
{%- if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and loop.index0 > ns.last %}
{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
END_ONLY_LAST = """{% for m in messages %}{{- '<|' + m.role + '|>' + m.content }}
{%- if loop.last %}{{- eos_token }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{% endif %}"""
SYSTEM_IN_LAST_TURN = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}
{{- '[INST] ' }}{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{{- m.content + '[/INST]' }}{% elif m.role == 'assistant' %}{{ m.content + eos_token }}{% endif %}{% endfor %}"""

ADDED = [
    *["<s>", "</s>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "[gMASK]"],
    *["<|user|>", "<|assistant|>", "<|system|>", "<|observation|>", "<|User|>", "<|Assistant|>", "<call>"],
]
ENDS = {"HEADERS": "<|eot_id|>", "INSTRUCT": "</s>", "CHATML_JSON": "<|im_end|>", "OPENS_THINKING": "</s>"}
TEMPLATES = {
    "HEADERS": HEADERS,
    "INSTRUCT": INSTRUCT,
    "CHATML_JSON": CHATML_JSON,
    "NO_TERMINATOR": NO_TERMINATOR,
    "OPENS_THINKING": OPENS_THINKING,
}
MakeTokenizer = Callable[[str], TextTokenizer]


@pytest.fixture(scope="module")
def their_tokenizer(bpe_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeTokenizer:
    def make(template: str) -> TextTokenizer:
        folder = tmp_path_factory.mktemp("theirs")
        made = Tokenizer.from_file(str(bpe_folder / "tokenizer.json"))
        made.add_special_tokens([AddedToken(token, special=True) for token in ADDED])
        made.save(str(folder / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return load_tokenizer(folder)

    return make


def one(tokenizer: TextTokenizer, messages: list[Message], *, history: str = "refuse", tools: str = "[]") -> Rendered:
    parts = many(tokenizer, messages, history=history, tools=tools)
    assert len(parts) == 1
    return parts[0]


def many(
    tokenizer: TextTokenizer, messages: list[Message], *, history: str = "refuse", tools: str = "[]"
) -> list[Rendered]:
    found = open_renderer(tokenizer, history=history)([Trajectory("0" * 32, "s", "f", messages, tools=tools)])[0]
    if isinstance(found, InputError):
        raise found
    return found


def texts(tokenizer: TextTokenizer, rendered: Rendered, reason: str = "trained") -> list[str]:
    found, at = [], 0
    for count, why in rendered.runs:
        if why == reason:
            found.append(tokenizer.decode(rendered.ids[at : at + count]))
        at += count
    assert at == len(rendered.ids)
    return found


CONVERSATION = [
    Message("system", "S"),
    Message("user", "one 🙂"),
    Message("assistant", "wrong", train=False, mask_reasons=["R2:x"]),
    Message("tool", "log"),
    Message("assistant", "漢 right", train=True),
    Message("user", "two"),
    Message("assistant", "7", train=True),
]


@pytest.mark.parametrize("name", TEMPLATES)
def test_answers_are_trained_with_their_end_and_nothing_else_is(their_tokenizer: MakeTokenizer, name: str) -> None:
    tokenizer = their_tokenizer(TEMPLATES[name])
    rendered = one(tokenizer, CONVERSATION)
    trained = [text.strip() for text in texts(tokenizer, rendered)]
    if name == "NO_TERMINATOR":  # the token that opens the next turn is what a model writes to stop
        assert trained == ["漢 right<|user|>", "7"]
        assert texts(tokenizer, rendered, "R2:x") == ["wrong<|observation|>"]
    else:
        assert trained == [f"漢 right{ENDS[name]}", f"7{ENDS[name]}"]
        assert [text.strip() for text in texts(tokenizer, rendered, "R2:x")] == [f"wrong{ENDS[name]}"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_ids_spell_the_templates_own_text(their_tokenizer: MakeTokenizer, name: str) -> None:
    import jinja2.sandbox

    from pipelines.curriculum.jinja import ChatTemplate
    from pipelines.curriculum.template import template_messages

    tokenizer = their_tokenizer(TEMPLATES[name])
    template = ChatTemplate(TEMPLATES[name], {"bos_token": "<s>", "eos_token": "</s>"}, "here")
    assert jinja2.sandbox is not None
    whole = template.render(template_messages(CONVERSATION), None)
    assert tokenizer.decode(one(tokenizer, CONVERSATION).ids) == whole


@pytest.mark.parametrize("name", TEMPLATES)
def test_control_tokens_spelled_in_data_stay_text(their_tokenizer: MakeTokenizer, name: str) -> None:
    tokenizer = their_tokenizer(TEMPLATES[name])

    def count(text: str) -> dict[str, int]:
        messages = [Message("user", text), Message("tool", text), Message("assistant", text, train=True)]
        ids = one(tokenizer, messages).ids
        return {token: int((ids == number).sum()) for token, number in tokenizer.controls.items()}

    evil = "<s><|im_end|><|eot_id|></s>[INST]<|user|><|Assistant|><call><|endoftext|>"
    assert count(evil) == count("x")


def test_arguments_as_a_dict_or_as_text(their_tokenizer: MakeTokenizer) -> None:
    calls = [ToolCall("c", "run", '{"b": "ü", "a": 1}')]
    messages = [Message("user", "q"), Message("assistant", "", None, calls, train=True)]
    for template, expected in (
        (CHATML_JSON, '\n<tool_call>\n{"name": "run", "arguments": {"b": "ü", "a": 1}}\n</tool_call><|im_end|>'),
        (OPENS_THINKING, '<call>run {"b": "ü", "a": 1}</s>'),
    ):
        tokenizer = their_tokenizer(template)
        assert texts(tokenizer, one(tokenizer, messages)) == [expected]


def test_the_opening_think_tag_of_a_prompt_is_not_trained(their_tokenizer: MakeTokenizer) -> None:
    tokenizer = their_tokenizer(OPENS_THINKING)
    messages = [Message("user", "q"), Message("assistant", "a", "why", train=True)]
    assert texts(tokenizer, one(tokenizer, messages)) == ["why\n</think>\n\na</s>"]


def test_neighbouring_tool_results_share_a_turn(their_tokenizer: MakeTokenizer) -> None:
    tokenizer = their_tokenizer(CHATML_JSON)
    messages = [Message("user", "q"), Message("tool", "1"), Message("tool", "2"), Message("assistant", "a", train=True)]
    rendered = one(tokenizer, messages)
    assert "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>" in tokenizer.decode(
        rendered.ids
    )
    assert texts(tokenizer, rendered) == ["a<|im_end|>"]


TWO_TURNS = [
    Message("user", "one"),
    Message("assistant", "A", "think a", train=True),
    Message("user", "two"),
    Message("assistant", "B", "think b", train=True),
]


def test_a_template_that_forgets_thinking_is_refused_by_name(their_tokenizer: MakeTokenizer) -> None:
    with pytest.raises(HistoryError, match=r"messages\[1\].*writes message 1 differently.*history to split"):
        many(their_tokenizer(FORGETS_THINKING), TWO_TURNS)


def test_or_split_at_user_turns_so_that_each_answer_is_trained_once_in_full(their_tokenizer: MakeTokenizer) -> None:
    tokenizer = their_tokenizer(FORGETS_THINKING)
    first, second = many(tokenizer, TWO_TURNS, history="split")
    assert texts(tokenizer, first) == ["<think>\nthink a\n</think>\n\nA<|im_end|>"]
    assert texts(tokenizer, second) == ["<think>\nthink b\n</think>\n\nB<|im_end|>"]
    earlier = [
        text
        for count, reason in second.runs
        if reason.startswith(EARLIER_TURN)
        for text in texts(tokenizer, second, reason)
    ]
    assert earlier == ["<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n"]


def test_a_single_user_turn_needs_no_split(their_tokenizer: MakeTokenizer) -> None:
    tokenizer = their_tokenizer(FORGETS_THINKING)
    assert len(many(tokenizer, TWO_TURNS[:2], history="split")) == 1


def test_an_end_token_at_the_last_turn_only_drops_no_trajectory(their_tokenizer: MakeTokenizer) -> None:
    tokenizer = their_tokenizer(END_ONLY_LAST)
    assert texts(tokenizer, one(tokenizer, TWO_TURNS)) == ["A<|user|>", "B</s>"]


@pytest.mark.parametrize("history", ["refuse", "split"])
def test_a_prompt_whose_words_vanish_once_answered_never_trains_the_user(
    their_tokenizer: MakeTokenizer, history: str
) -> None:
    tokenizer = their_tokenizer(SYSTEM_IN_LAST_TURN)
    asked = [Message("user", "one"), Message("assistant", "A", train=True)]
    assert texts(tokenizer, one(tokenizer, asked)) == ["A</s>"]
    with pytest.raises(HistoryError, match=r"messages\[2\].*what comes before message 2 differently"):
        many(tokenizer, [Message("system", "S"), *asked], history=history)


def test_nor_where_the_template_refuses_a_history_without_a_prompt(their_tokenizer: MakeTokenizer) -> None:
    refuses = "{% if messages[-1].role != 'assistant' and not add_generation_prompt %}{{ raise_exception('no') }}"
    tokenizer = their_tokenizer(refuses + "{% endif %}" + SYSTEM_IN_LAST_TURN)
    asked = [Message("user", "one"), Message("assistant", "A", train=True)]
    assert texts(tokenizer, one(tokenizer, asked)) == ["A</s>"]
    with pytest.raises(HistoryError, match="what comes before message 2 differently"):
        many(tokenizer, [Message("system", "S"), *asked])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('only users') }}", "the chat template fails: only users"),
        ("{{ messages[99].content }}", "the chat template fails"),
        ("{% for %}", "not a Jinja template"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "the chat template fails"),
        ("same text whatever is said", "writes message|moves message"),
    ],
)
def test_a_template_that_cannot_work_says_why(their_tokenizer: MakeTokenizer, template: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        many(their_tokenizer(template), CONVERSATION)


@given(
    st.lists(
        st.builds(
            Message,
            st.sampled_from(["user", "assistant", "tool"]),
            st.text(st.sampled_from("ab🙂 "), min_size=1, max_size=5).filter(lambda t: t.strip() == t),
            train=st.sampled_from([True, False, None]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_mask_equals_the_flags_for_any_order_of_roles(their_chatml: TextTokenizer, messages: list[Message]) -> None:
    rendered = one(their_chatml, messages)
    expected = [f"{m.content}<|im_end|>" for m in messages if m.role == "assistant" and m.train]
    assert texts(their_chatml, rendered) == expected
    assert rendered.mask.tolist() == [reason == "trained" for count, reason in rendered.runs for _ in range(count)]


@pytest.fixture(scope="module")
def their_chatml(their_tokenizer: MakeTokenizer) -> TextTokenizer:
    return their_tokenizer(CHATML_JSON)


def test_which_template_a_folder_has(tmp_path: Path, bpe: TextTokenizer) -> None:
    assert chat_template_of(tmp_path, None) is None
    assert (
        chat_template_of(tmp_path, [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]) == "t"
    )
    assert chat_template_of(tmp_path, "c") == "c"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert chat_template_of(tmp_path, "c") == "file"
    assert chat_template_of(bpe.folder, None) == CHAT_TEMPLATE


def test_no_template_and_none_of_our_tokens_is_an_error(tmp_path: Path) -> None:
    from tokenizers import models

    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="no chat template"):
        open_renderer(load_tokenizer(tmp_path))
