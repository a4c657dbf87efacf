"""Personal data and keys in corpus text: what becomes a placeholder, and what of code and mathematics only looks so."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.text.pii import PII_KINDS, replace_private, replace_private_text

SECRET = "A1b2C3d4E5f6G7h8J9k0"  # no issuer's
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7bq3" * 3 + "\n-----END RSA PRIVATE KEY-----"
PRIVATE = [
    ("Write to ann.other+x@somewhere.co.uk now.", "Write to <EMAIL_1> now.", {"email": 1}),
    ("# By <bo@uni-x.edu>, cy@x.org, bo@uni-x.edu", "# By <<EMAIL_1>>, <EMAIL_2>, <EMAIL_1>", {"email": 3}),
    ("müller@uni-köln.de, josé@correo.es, анна@почта.рф", "<EMAIL_1>, <EMAIL_2>, <EMAIL_3>", {"email": 3}),
    ("请联系bob@mail.com或ann@mail.com。", "请联系<EMAIL_1>或<EMAIL_2>。", {"email": 2}),
    ("bo@xn--80a1acny.xn--p1ai", "<EMAIL_1>", {"email": 1}),
    ("host 131.211.80.17 is up", "host <IP_1> is up", {"ip": 1}),
    ("ping 8.8.8.8, then 9.9.9.9:53", "ping <IP_1>, then <IP_2>:53", {"ip": 2}),
    ("http://93.184.216.34/x and 2606:4700:4700::1111", "http://<IP_1>/x and <IP_2>", {"ip": 2}),
    ("Telephone: +1 (617) 234 1000. Fax: +44 (1276) 682 323.", "Telephone: <PHONE_1>. Fax: <PHONE_2>.", {"phone": 2}),
    ("call +49 170 1234567 or (212) 656-0187", "call <PHONE_1> or <PHONE_2>", {"phone": 2}),
    ("'name', '212-656-0187'", "'name', '<PHONE_1>'", {"phone": 1}),
    ("aws = 'AKIA" + "ABCDEFGH12345678'", "aws = '<TOKEN_1>'", {"key": 1}),
    ("Authorization: Bearer " + SECRET + ".x", "Authorization: Bearer <TOKEN_1>", {"key": 1}),
    ('api_key = "' + SECRET + '"', 'api_key = "<SECRET_1>"', {"key": 1}),
    ("postgres://bob:hunter2@db:5432/x", "postgres://<CREDENTIALS_1>@db:5432/x", {"key": 1}),
    (f"cert:\n{KEY}\nend", "cert:\n<PRIVATE_KEY_1>\nend", {"key": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected", "counts"), PRIVATE)
def test_private_things_become_numbered_placeholders(text: str, expected: str, counts: dict[str, int]) -> None:
    assert replace_private_text(text) == (expected, counts)


HARMLESS = {
    "numbering": [
        "36.7.2.1. SQLDA Data Structure",
        "See Section 9.16.2.2 and § 12.4.112.1, (theorem 3.2.1.140)",
        'SURNAME = ObjectIdentifier("2.5.4.4"); X448 = ObjectIdentifier("1.3.101.111")',
        "zlib 1.2.0.1, numpy==1.26.4.1, version 10.0.190.41, Chrome/96.0.104.110 Safari",
        "1.2.840.113549.1.1.11 and 2024.11.30.1",
    ],
    "private, local, documentation and multicast addresses": [
        "127.0.0.1 10.1.2.3 192.168.0.1 172.16.5.4 169.254.1.1 0.0.0.0 255.255.255.255",
        "192.0.2.7 198.51.100.9 203.0.113.44 224.0.0.251 172.217.0.0/16",
        "::1 fe80::1 2001:db8::7 00:1A:2B:3C:4D:5E 12:34:56 std::vector::size ab:cd::ef",
    ],
    "example addresses, service names": [
        "me@example.com you@mail.example.org a@b.test git@github.com noreply@x.com root@localhost",
        "(212) 555-0187 and 212-555-0123 are of films",
    ],
    "matrix products and files": [
        "y = x@self.weight + a@b.T; z = x@W.to(device) @ q@k.mT",
        "icon@2x.png @pytest.fixture traverse t@Sort.unknown a @ b",
    ],
    "hashes and long numbers": [
        "d41d8cd98f00b204e9800998ecf8427e da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "pi = 3.14159265358979323846264338327950288419716939937510",
        "2^127 - 1 = 170141183460469231731687303715884105727",
        "1700000000000 4111 1111 1111 1111 2024-01-02 12:30:45",
    ],
    "sums and tables": [
        "300-200-1000 = -900 and x = 900-300-2000",
        "9 +12345678901 and 5 + 212-345-6789",
        "+12.34-56.78 +1.234 567 890 +12 34 56 78",
        "$f(x) = +49 170 1234567$",
        "What is 867-530-9123? Compute: 567-234-1234. x & 212-656-0187 \\\\",
        "f (123) 456-7890 and 212-656-0187 & 3",
        "\\begin{align}\n +44 20 7946 0958 \\\\\n 212-656-0187\n\\end{align}",
        "\\[ 131.211.80.17 \\]",
    ],
    "no keys": [
        "password=settings.DB_PASSWORD_20 and private_key = ed25519.Ed25519PrivateKey.from_private(x)",
        "MLKEM768X25519PrivateKey = rust_openssl.hpke.MLKEM768X25519PrivateKey",
        "sk-learn-0-24-2-release-notes-and-more, Basic Linear-Algebra-Subprograms-2",
        "AKIAIOSFODNN7EXAMPLE api_key='your-api-key-123456'",
        "postgres://user:password@host/db",
        'between "-----BEGIN RSA PRIVATE KEY-----" and "-----END RSA PRIVATE KEY-----" is base64',
    ],
    "odd": ["", "!!!", "\u2028a\0b\x85", "@" * 50, "+" * 50 + "1" * 50, "$" * 99, "\\[" * 99],
}


@pytest.mark.parametrize("what", HARMLESS)
def test_code_and_mathematics_are_left_as_they_are(what: str) -> None:
    for text in HARMLESS[what]:
        assert replace_private_text(text) == (text, {})


def test_a_formula_does_not_hide_what_stands_beside_it() -> None:
    text = "cost is $5, call +49 170 1234567\n$x+1$ write bo@uni-x.edu\n\\[a\\] host 131.211.80.17"
    assert replace_private_text(text)[1] == {"email": 1, "ip": 1, "phone": 1}


def test_only_the_kinds_that_are_asked_for_are_replaced() -> None:
    text = "bo@uni-x.edu at host 131.211.80.17, Telephone: +1 (617) 234 1000, postgres://bob:x9@db.uni-x.edu/"
    assert replace_private_text(text, ["ip"])[1] == {"ip": 1}
    assert replace_private_text(text, ["email"]) == (text.replace("bo@uni-x.edu", "<EMAIL_1>"), {"email": 1})
    assert replace_private_text(text)[1] == {"email": 1, "ip": 1, "key": 1, "phone": 1}
    with pytest.raises(ValueError, match=r"pii kind 'names' is unknown\. Use some of email, ip, phone, key"):
        replace_private(pa.array(["x"]), ["names"])


SAMPLES = [text for text, _, _ in PRIVATE] + [text for texts in HARMLESS.values() for text in texts]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(SAMPLES) | st.text(max_size=12), max_size=4).map(" ; ".join), max_size=5))
def test_a_text_is_changed_alike_alone_and_in_a_batch_and_only_once(texts: list[str]) -> None:
    together = replace_private(pa.array(texts, pa.large_string()))
    assert together.texts.to_pylist() == [replace_private_text(text)[0] for text in texts]
    again = replace_private(together.texts)
    assert (again.texts.to_pylist(), again.found) == (together.texts.to_pylist(), {})
    assert sum(together.counts().values()) == sum(sum(kinds.values()) for kinds in together.found.values())
    assert set(together.counts()) <= set(PII_KINDS)


def test_nulls_and_types_of_a_batch() -> None:
    found = replace_private(pa.array([None, "bo@uni-x.edu", ""]))
    assert (found.texts.to_pylist(), found.texts.type) == ([None, "<EMAIL_1>", ""], pa.large_string())
    assert found.found == {1: {"email": 1}}
    assert replace_private(pa.array([], pa.string())).texts.type == pa.large_string()


@pytest.mark.timeout(60)
def test_megabytes_made_to_provoke_end() -> None:
    line = "+1 234 567 \\[ $ a@b.co 1.2.3.4 password= -----BEGIN PRIVATE KEY----- Telephone: +1 (617) 234 1000 "
    counts = replace_private_text(line * 4_000)[1]
    assert set(counts) == {"email"}, "all on one line, after an open formula"
    assert replace_private_text((line.replace("\\[ $", "") + "\n") * 4_000)[1] == {"email": 4_000, "phone": 4_000}
