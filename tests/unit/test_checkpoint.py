"""Checkpoints and proofs in C2SP's formats: what is signed, and everything that is refused."""

import hashlib

import pytest

from gatepost.core.errors import Altered, BadSetting
from gatepost.ledger import checkpoint
from gatepost.ledger.checkpoint import Checkpoint, Proof, Signer, open_note, parse_proof, parse_verifier

SIGNER = Signer(bytes(range(32)))
ORIGIN = "gatepost.example/accounts/acc_1"
HEAD = Checkpoint(ORIGIN, 7, hashlib.sha256(b"root").digest())
NOTE = SIGNER.sign(HEAD)
KEY = SIGNER.verifier(ORIGIN)

# The example of the signed-note specification.
EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE_LINE = (
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
)


def test_the_verifier_key_of_the_specification() -> None:
    found = parse_verifier(EXAMPLE_KEY)
    assert (found.name, found.id.hex()) == ("example.com/foo", "530d903a")
    assert str(found) == EXAMPLE_KEY
    assert checkpoint._is_signed("This is an example message.\n", EXAMPLE_LINE, found)
    with pytest.raises(Altered, match="altered"):
        checkpoint._is_signed("This is another message.\n", EXAMPLE_LINE, found)


def test_a_checkpoint_is_three_lines_and_a_signature() -> None:
    lines = NOTE.split("\n")
    assert lines[:2] == [ORIGIN, "7"]
    assert lines[3] == ""
    assert lines[4].startswith(f"— {ORIGIN} ")
    assert lines[5:] == [""]
    assert open_note(NOTE, parse_verifier(str(KEY))) == HEAD


def test_the_origin_has_no_scheme() -> None:
    assert checkpoint.origin("https://gatepost.example:8443", "acc_1") == "gatepost.example:8443/accounts/acc_1"


def test_countersignatures_of_others_are_ignored() -> None:
    cosigned = NOTE + EXAMPLE_LINE + "\n"
    assert open_note(cosigned, KEY) == HEAD
    with pytest.raises(BadSetting, match="not signed by"):
        open_note(NOTE, Signer(b"o" * 32).verifier(ORIGIN))
    with pytest.raises(BadSetting, match="not signed by"):
        open_note(NOTE, SIGNER.verifier("gatepost.example/accounts/acc_2"))


@pytest.mark.parametrize(
    "note",
    [
        "", "\n", NOTE.replace("\n7\n", "\n8\n"), NOTE.replace("acc_1\n", "acc_2\n", 1), NOTE.replace("— ", "- "),
        NOTE[:-1], NOTE.replace("\n\n", "\n"), NOTE + "x\n", NOTE.replace("\n", "\r\n"), NOTE + "\n" * 70_000,
    ],
)  # fmt: skip
def test_an_altered_note_is_refused(note: str) -> None:
    with pytest.raises(BadSetting):
        open_note(note, KEY)


@pytest.mark.parametrize("size", ["07", "-1", "", "7 ", "1" * 20, "٧"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    text = f"{ORIGIN}\n{size}\n{NOTE.splitlines()[2]}\n"
    with pytest.raises(BadSetting):
        checkpoint._parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "name", "name+00000000", str(KEY)[:-4], str(KEY).replace("+", "+0", 1), str(KEY).removeprefix(ORIGIN),
        str(KEY).replace("acc_1", "acc_2"), f"{ORIGIN}+{KEY.id.hex()}+Ag==",
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        parse_verifier(text)


def test_a_proof_is_read_as_it_was_written() -> None:
    for path in ([], [bytes(32)], [bytes(32), b"x" * 32]):
        proof = Proof(b'{"a":1}', 3, path, NOTE)
        assert parse_proof(proof.text()) == proof
    assert Proof(b"{}", 0, [], NOTE).text().startswith("c2sp.org/tlog-proof@v1\nextra e30=\nindex 0\n\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        NOTE,
        "c2sp.org/tlog-proof@v1\nindex 0\n\n" + NOTE,
        "c2sp.org/tlog-proof@v2\nextra e30=\nindex 0\n\n" + NOTE,
        "c2sp.org/tlog-proof@v1\nextra e30=\nindex 00\n\n" + NOTE,
        "c2sp.org/tlog-proof@v1\nextra e30=\nindex 0\nAA==\n\n" + NOTE,
        "c2sp.org/tlog-proof@v1\nextra !\nindex 0\n\n" + NOTE,
    ],
)
def test_what_is_no_proof_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        parse_proof(text)


def test_a_signer_prints_nothing() -> None:
    assert repr(SIGNER) == "Signer(***)"
