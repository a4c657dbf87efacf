"""Secrets and people: what is replaced, what stays, equal values with equal names."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.redact import redact_text, redact_trajectory

SECRET = "A1b2C3d4E5f6G7h8J9k0"  # no issuer's
PRIVATE = [
    ("mail ann.other+x@somewhere.co.uk now", "mail <EMAIL_1> now"),
    ("key AKIA" + "ABCDEFGH12345678 end", "key <TOKEN_1> end"),
    ("ghp_" + SECRET * 2, "<TOKEN_1>"),
    ("sk-ant-api03-" + SECRET, "<TOKEN_1>"),
    ("Authorization: Bearer " + SECRET + ".x", "Authorization: Bearer <TOKEN_1>"),
    ("export API_KEY=" + SECRET, "export API_KEY=<SECRET_1>"),
    ('{"password": "' + SECRET + '"}', '{"password": "<SECRET_1>"}'),
    ("postgres://bob:hunter2@db:5432/x", "postgres://<CREDENTIALS_1>@db:5432/x"),
    ("ls /home/bsmith/src", "ls /home/<USER_1>/src"),
    ("C:\\\\Users\\\\Ann\\\\x", "C:\\\\Users\\\\<USER_1>\\\\x"),
    ("from 8.8.8.8 to 8.8.4.4 and 8.8.8.8", "from <IP_1> to <IP_2> and <IP_1>"),
    ("host 2606:4700:4700::1111 up", "host <IP_1> up"),
    ("call +49 170 1234567 or (212) 555-0187", "call <PHONE_1> or <PHONE_2>"),
    ("card 4111 1111 1111 1111.", "card <CARD_1>."),
    ("IBAN DE89 3704 0044 0532 0130 00", "IBAN <IBAN_1>"),
    ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n", "<PRIVATE_KEY_1>\n"),
]
PUBLIC = [
    "git@github.com:a/b.git and noreply@anthropic.com and me@example.org",
    "/home/user/x /Users/runner/y /home/node",
    "127.0.0.1 10.1.2.3 192.168.0.1 203.0.113.7 version 1.2.3.4 pkg==5.6.7.8",
    "password = get_password(user_name_1)",
    "api_key: your-key-goes-here",
    "sk-learn-like-slug-with-many-words",
    "@pytest.fixture and a@b in code x[a @ b.T]",
    "1700000000000 2024-01-02 12:30:45 0.123456789012",
    "4111 1111 1111 1112",
    "c++ std::vector::size a::b::c 12:34:56",
    "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
]


@pytest.mark.parametrize(("text", "expected"), PRIVATE)
def test_private_things_get_typed_placeholders(text: str, expected: str) -> None:
    redacted, counts = redact_text(text)
    assert redacted == expected
    assert sum(counts.values()) == expected.count("<")


@pytest.mark.parametrize("text", PUBLIC)
def test_public_and_reserved_things_stay(text: str) -> None:
    assert redact_text(text) == (text, {})


@given(st.lists(st.sampled_from([text for text, _ in PRIVATE] + PUBLIC) | st.text(max_size=20), max_size=6))
def test_redacting_twice_changes_nothing(parts: list[str]) -> None:
    once, _ = redact_text(" ; ".join(parts))
    assert redact_text(once) == (once, {})


def test_a_run_is_one_record_so_names_agree_between_observation_and_call(make: SimpleNamespace) -> None:
    run = make.build(
        make.user("write to the customer"),
        make.call("find_customer", {"id": 3}),
        make.fine("mail: joe@firm.de, other: sue@firm.de"),
        make.call("send", {"to": "sue@firm.de"}, reasoning="sue@firm.de it is"),
        make.fine("sent"),
        make.say("Sent to sue@firm.de."),
    )
    redacted, counts = redact_trajectory(run)
    texts = [message.content for message in redacted.messages]
    assert texts[2] == "mail: <EMAIL_1>, other: <EMAIL_2>"
    assert json.loads(redacted.messages[3].tool_calls[0].arguments) == {"to": "<EMAIL_2>"}
    assert redacted.messages[3].reasoning == "<EMAIL_2> it is"
    assert texts[5] == "Sent to <EMAIL_2>."
    assert counts == {"EMAIL": 5}
    assert redacted.flags == ["redacted"]
    assert redacted.id == run.id
    assert run.messages[2].content.startswith("mail: joe@")


def test_nothing_to_redact_gives_the_same_object(make: SimpleNamespace) -> None:
    run = make.build(make.bash("ls"), make.fine("a"))
    redacted, counts = redact_trajectory(run)
    assert redacted is run
    assert counts == {}


def test_openings_without_ends_are_left_alone() -> None:
    text = "-----BEGIN PRIVATE KEY-----" * 20_000
    assert redact_text(text) == (text, {})
