"""Certificates of events: what they say, how they are verified offline, and which are refused."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import boto3
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from contract import load_contract
from eventplane.envelope import Envelope, write_event
from eventplane.ledger import HandoverRecord, to_line
from eventplane.reasons import Outcome
from eventplane.sending import without_stamp
from glue_jobs.delivery_audit.verdict import digest_of, verdict_event
from operations.certificate import (
    ALGORITHM,
    MAX_CERTIFICATE_BYTES,
    CertificateError,
    Flaw,
    page,
    sha256,
    sign,
    text,
    verified,
)
from operations.certificate_command import _FileSigner, _KmsSigner
from operations.cloud import Cloud
from operations.trace import due_inboxes
from tests.unit.operations.support import (
    ACCEPTED_MS,
    ALARM,
    DECIDED_MS,
    LATER,
    Folder,
    Run,
    ledger_line,
    line,
    manifest,
)

CONTRACT = load_contract()
DAY = "2026-01-01"
DAYS = ("--from", DAY, "--to", DAY)
NAMES = ("/homes/1/voice", "17")


@dataclass(frozen=True)
class Desk:
    """An archive in which an alarm rang at home and was taken by each reader, and the commands on it."""

    folder: Folder
    run: Run

    @property
    def document(self) -> Path:
        return self.folder.root / "out" / "certificate.json"

    @property
    def public(self) -> Path:
        return self.folder.root / "out" / "public.pem"

    def issue(self, *more: str, key: str = "key") -> tuple[int, str, str]:
        self.document.parent.mkdir(exist_ok=True)
        private = ("--key", str(self.document.parent / key))
        self.public.write_text(self.run("certificate", "key", *private)[1])
        words = (*self.folder.named, *DAYS, "--output", str(self.document), *private, *more)
        return self.run("certificate", *NAMES, *words)

    def verify(self, file: Path | None = None, *more: str) -> tuple[int, str, str]:
        return self.run("certificate", "verify", str(file or self.document), "--key", str(self.public), *more)


@pytest.fixture
def desk(folder: Folder, run: Run) -> Desk:
    folder.write("tap", [line(ALARM), manifest(7), LATER], DAY)
    stamped = ALARM.stamped(senderdevice="home-1")
    version, ledger, handovers = CONTRACT.version, [], []
    for inbox in sorted(due_inboxes(stamped, CONTRACT)):
        route, delivered = (f"to-{inbox}", inbox), Outcome.DELIVERED
        known = {"contract_version": version, "sender": stamped.sender}
        ledger.append(ledger_line(ALARM, delivered, route=route, **known))
        times, names = (DECIDED_MS + 9, DECIDED_MS), (*ALARM.claim, ALARM.type)
        end = HandoverRecord(
            *times, inbox, version, *names, delivered, None, None, 1, "m-2", route[0], str(stamped.sender)
        )
        handovers.append(to_line(end))
    folder.write("ledger", ledger, DAY)
    folder.write("handovers", handovers, DAY)
    return Desk(folder, run)


def audited(folder: Folder, altered: str = "", inventory: str = "", **changed: object) -> Envelope:
    """File a verdict on the archive's day as the audit does."""
    listed = {
        name.relative_to(folder.root).as_posix(): sha256(name.read_bytes() + altered.encode())
        for name in folder.root.glob("*/date=*/hour=*/*.gz")
    }
    listing = (inventory or json.dumps({"objects": listed})).encode()
    chain = {"inventory": digest_of(listing), "before": None, "begins": None, "compared": None}
    members: dict[str, Any] = {"coverage": {}, "totals": {}}
    members |= {"verdict": "proven", "reasons": [], "chain": chain, "revision": {"number": 0}}
    members |= {"window": {"date": DAY}, "watermark": {"as_of_ms": ACCEPTED_MS}}
    members |= {"devices": [{"client_id": "home-1", "skew_ms": -12}]} | changed
    body = json.dumps(members).encode()
    event = verdict_event(body)
    folder.put(f"audit/reports/{DAY}/0.json", body)
    folder.put(f"audit/inventories/{DAY}/{chain['inventory']}.json.gz", gzip.compress(listing))
    folder.put(f"audit/verdicts/{DAY}.json", f"{event.json}\n".encode())
    return event


def test_it_has_every_step_of_the_way(desk: Desk) -> None:
    verdict = audited(desk.folder)
    assert desk.issue()[::2] == (0, "")
    made = json.loads(desk.document.read_bytes())
    words = [each["step"] for each in made["steps"]]
    assert list(dict.fromkeys(words)) == ["said", "stored", "sent", "routed", "taken", "rang"]
    assert made["event"]["digest"] == sha256(ALARM.json.encode())
    assert {each["fate"] for each in made["accounts"]} == {"handled"}
    assert (made["verdict"]["digest"], made["verdict"]["verdict"]) == (
        sha256(verdict.json.encode()),
        "proven",
    )
    assert made["clocks"][0]["ahead_ms"] == -12
    assert (made["is_complete"], made["unknown"]) == (True, [])
    for file in (desk.document, desk.document.with_suffix(".html")):
        status, out, err = desk.verify(file)
        assert (status, err) == (0, "")
        assert f"verdict: proven on {DAY}, event {verdict.id}" in out


def test_the_trace_of_it_shows_both_ends(desk: Desk) -> None:
    status, out, err = desk.run("trace", *NAMES, *desk.folder.named, *DAYS)
    assert (status, err) == (0, "")
    assert {"taken by call-service", "taken by alarm-centre"} <= {*re.findall(r"taken by [a-z-]+", out)}


def test_following_does_not_wait_for_a_manifest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.system.sleep", lambda _: pytest.fail("it waits"))
    desk.folder.write("tap", [line(ALARM)], DAY)
    status, out, _ = desk.run("trace", *NAMES, *desk.folder.named, *DAYS, "--follow")
    assert (status, "call-service.inbox: unknown: no manifest of home-1" in out) == (3, True)


def test_the_verdict_that_operations_got_is_compared(desk: Desk) -> None:
    verdict, outside = audited(desk.folder), desk.folder.root / "verdict.json"
    desk.issue()
    outside.write_text(verdict.stamped(senderservice="audit").json)
    assert desk.verify(None, "--verdict", str(outside))[0] == 0
    outside.write_text(without_stamp(verdict).json.replace("proven", "broken"))
    status, _, err = desk.verify(None, "--verdict", str(outside))
    assert (status, Flaw.OTHER_VERDICT in err) == (1, True)


def altered_rows(desk: Desk, folder: str, **members: Any) -> None:
    (file,) = desk.folder.root.glob(f"{folder}/*/*/one.json.gz")
    first, *others = gzip.decompress(file.read_bytes()).splitlines()
    body = b"\n".join([json.dumps(json.loads(first) | members, separators=(",", ":")).encode(), *others])
    file.write_bytes(gzip.compress(body))


def test_one_failed_end_hides_no_unknown_one(desk: Desk) -> None:
    altered_rows(desk, "handovers", outcome="dead_lettered", reason="x")
    desk.folder.write("tap", [line(ALARM), LATER], DAY)
    assert desk.issue()[0] == 1
    assert desk.issue("--incomplete")[0] == 0
    assert desk.verify()[0] == 3


@pytest.mark.parametrize(
    "members",
    [
        *({"decided_at_ms": each} for each in (10**20, -(10**17), 10**200)),
        *({"reason": "\ud800"}, {"route": {"a": 1}}, {"sender": 7}),
    ],
)
@pytest.mark.parametrize("kind", ["handovers", "ledger"])
def test_a_row_of_wrong_values_is_damage(desk: Desk, kind: str, members: dict[str, Any]) -> None:
    altered_rows(desk, kind, **members)
    status, out, _ = desk.issue("--incomplete")
    assert (status, f"what else {kind}/date={DAY}" in out) == (0, True)
    _, _, err = desk.run("trace", *NAMES, *desk.folder.named, *DAYS, "--json")
    assert f"{kind}/date={DAY}/hour=12/one.json.gz could not be read" in err


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_beyond_the_calendar_is_shown(desk: Desk, time: str) -> None:
    said = {**ALARM.attributes, "time": time, "recordedtime": time}
    desk.folder.write("tap", [line(write_event(said, {})), manifest(7), LATER], DAY)
    assert desk.issue()[0] == 0
    assert desk.verify(desk.document.with_suffix(".html"))[0] == 0


def test_names_cannot_turn_what_is_read(desk: Desk) -> None:
    turned = "17\u202e71"
    desk.folder.write("tap", [line(write_event({**ALARM.attributes, "id": turned}, {}))], DAY)
    desk.issue()
    words = (*desk.folder.named, *DAYS, "--incomplete", "--output", str(desk.document))
    assert desk.run("certificate", turned, *words, "--key", str(desk.document.parent / "key"))[0] == 0
    shown = desk.verify()[1] + desk.document.with_suffix(".html").read_text().partition("<script")[0]
    assert (shown.count("17\\u202e71"), "\u202e" in shown) == (4, False)


def test_the_page_does_not_replace_the_document(desk: Desk) -> None:
    assert desk.issue("--output", "certificate.html")[0] == 2


def test_a_damaged_object_is_named(desk: Desk) -> None:
    whole = gzip.compress(b"{}\n" * 50)
    desk.folder.put(f"ledger/date={DAY}/cut.json.gz", whole[: len(whole) // 2])
    assert f"what else ledger/date={DAY}/cut.json.gz had" in desk.issue()[1]


def test_a_damaged_contract_hides_no_trace(desk: Desk) -> None:
    altered_rows(desk, "ledger", contract_version="0123456789abcdef", decided_at_ms=DECIDED_MS + 1)
    desk.folder.put("contracts/0123456789abcdef.json", b"{}")
    status, out, _ = desk.run("trace", *NAMES, *desk.folder.named, *DAYS)
    assert (status, "taken by alarm-centre" in out) == (3, True)
    assert "missing: other inboxes: the archive has no contract 0123456789abcdef, which decided" in out


def test_it_says_that_no_audit_has_judged_it(desk: Desk) -> None:
    assert "no audit of 2026-01-01, or of all days, has judged them" in desk.issue()[1]
    assert desk.verify()[0] == 0


@pytest.mark.parametrize("devices", [None, 7, [7], {"a": 1}, [{"client_id": "home-1", "skew_ms": [1]}]])
def test_a_report_of_wrong_types_is_refused(desk: Desk, devices: object) -> None:
    audited(desk.folder, devices=devices)
    assert "the verdict on 2026-01-01 cannot be read" in desk.issue()[2]


@pytest.mark.parametrize("inventory", ['{"objects": []}', "[" * 50_000])
def test_a_wrong_inventory_is_refused(desk: Desk, inventory: str) -> None:
    audited(desk.folder, inventory=inventory)
    assert "the verdict on 2026-01-01 cannot be read" in desk.issue()[2]


@pytest.mark.parametrize("lacks", ["data/verdict", "data/chain/before", "data/chain/begins", "time"])
def test_a_verdict_that_lacks_a_member_is_refused(desk: Desk, lacks: str) -> None:
    verdict = json.loads(audited(desk.folder).json)
    *path, last = lacks.split("/")
    del reduce(getitem, path, verdict)[last]
    desk.folder.put(f"audit/verdicts/{DAY}.json", json.dumps(verdict).encode())
    assert "the verdict on 2026-01-01 cannot be read" in desk.issue()[2]


@pytest.mark.parametrize("what", ["evidence", "report", "inventory", "verdict"])
def test_what_contradicts_the_verdict_is_not_certified(desk: Desk, what: str) -> None:
    audited(desk.folder, "altered" if what == "evidence" else "")
    for file in desk.folder.root.glob(f"audit/{what[:8]}*/**/*.*"):
        other = gzip.compress(b'{"objects": {}}')
        file.write_bytes(other if what == "inventory" else file.read_bytes().replace(b"0", b"1", 1))
    status, out, err = desk.issue()
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "no certificate" in err
    assert not desk.document.exists()


@pytest.mark.parametrize("names", [NAMES, ("/homes/1/voice", "18")])
def test_an_unknown_end_is_not_certified(desk: Desk, names: tuple[str, str]) -> None:
    desk.folder.write("handovers", [], DAY)
    status, out, err = desk.run("certificate", *names, *desk.folder.named, *DAYS)
    assert (status, out) == (1, "")
    assert "leaves no receipts" in err or "the tap does not have the event" in err


def test_an_incomplete_one_says_what_is_missing(desk: Desk) -> None:
    desk.folder.write("handovers", [], DAY)
    assert desk.issue("--incomplete")[0] == 0
    status, out, _ = desk.verify()
    assert (status, "not known: alarm-centre.inbox: " in out) == (3, True)


def signed(desk: Desk) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(desk.document.read_bytes())
    return made


def swapped(desk: Desk) -> bytes:
    made = signed(desk)
    first, second, *_ = made["evidence"]
    made["evidence"] |= {first: made["evidence"][second], second: made["evidence"][first]}
    return text(made)


def other_letter(desk: Desk) -> bytes:
    """Spell a signature that ends with padding by other bits that no byte has."""
    made = signed(desk)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    while not (body := made["signature"].rstrip("=")) < made["signature"]:
        desk.issue()
        made = signed(desk)
    padding = made["signature"][len(body) :]
    return text({**made, "signature": f"{body[:-1]}{letters[letters.index(body[-1]) + 1]}{padding}"})


def other_root(desk: Desk) -> bytes:
    """Write the other signature that the key verifies: the second of two roots."""
    made = signed(desk)
    r, s = decode_dss_signature(base64.b64decode(made["signature"]))
    order = ec.SECP256R1.group_order
    other = encode_dss_signature(r, order - s)
    return text({**made, "signature": base64.b64encode(other).decode()})


def misshapen(member: str, value: object) -> Callable[[Desk], bytes]:
    """Return what signs, with the right key, a certificate whose `member` is of another kind."""

    def forge(desk: Desk) -> bytes:
        made = {name: each for name, each in signed(desk).items() if name != "signature"}
        return text(sign({**made, member: value}, _FileSigner(desk.document.parent / "key")))

    return forge


ATTACKS: dict[Flaw, list[Callable[[Desk], bytes]]] = {
    Flaw.ALTERED: [
        swapped,
        other_letter,
        other_root,
        lambda desk: desk.document.read_bytes().replace(b"home-1", b"home-2"),
        lambda desk: text({**signed(desk), "is_complete": False}),
        lambda desk: text({**signed(desk), "signature": ""}),
        lambda desk: text({**signed(desk), "signature": "no base64"}),
        lambda desk: page({**signed(desk), "contract": "another"}),
    ],
    Flaw.NOT_CANONICAL: [
        lambda desk: desk.document.read_bytes().replace(b" ", b"  ", 1),
        lambda desk: desk.document.read_bytes() + b"\n",
        lambda desk: json.dumps(signed(desk)).encode(),
    ],
    Flaw.NOT_JSON: [
        lambda desk: desk.document.read_bytes()[:-9],
        lambda desk: desk.document.read_bytes().replace(b"{", b'{"format": "x",', 1),
        lambda _: b"\xff",
        lambda _: b"<html></html>",
        lambda _: b"[" * 5_000,
    ],
    Flaw.UNKNOWN_MEMBER: [
        lambda desk: text({**signed(desk), "more": 1}),
        lambda desk: text({**signed(desk), "format": "eventplane.certificate.v2"}),
        lambda desk: text({key: value for key, value in signed(desk).items() if key != "unknown"}),
        lambda _: b"[]\n",
        *(
            misshapen(*each)
            for each in (
                ("event", {}),
                ("steps", [{}]),
                ("accounts", [None]),
                ("verdict", "proven"),
                ("unknown", 1),
                ("issued_at_ms", 10**30),
            )
        ),
    ],
    Flaw.OTHER_KEY: [lambda desk: text({**signed(desk), "key": "sha256:00"})],
    Flaw.TOO_LARGE: [lambda desk: desk.document.read_bytes() + b" " * MAX_CERTIFICATE_BYTES],
    Flaw.OTHER_PAGE: [
        lambda desk: page(signed(desk)).replace(b"<td>handled", b"<td>lost", 1),
        lambda desk: page(signed(desk)) + b"<script>alert(1)</script>",
        lambda desk: page(signed(desk)).replace(b'{\n "accounts"', b'{ "accounts"'),
    ],
}


@pytest.mark.parametrize(
    ("flaw", "attack"), [(flaw, each) for flaw, found in ATTACKS.items() for each in found]
)
def test_an_attack_is_refused_by_name(desk: Desk, flaw: Flaw, attack: Callable[[Desk], bytes]) -> None:
    desk.issue()
    body = attack(desk)
    forged = desk.folder.root / "forged"
    forged.write_bytes(body)
    status, out, err = desk.verify(forged)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"no valid certificate ({flaw})" in err


def test_another_key_does_not_verify_it(desk: Desk, tmp_path: Path) -> None:
    desk.issue()
    body, other = desk.document.read_bytes(), _FileSigner(tmp_path / "other")
    with pytest.raises(CertificateError, match=Flaw.OTHER_KEY):
        verified(body, other.public)
    stolen = {**signed(desk), "signature": sign({}, other)["signature"]}
    desk.document.write_bytes(text(stolen))
    status, _, err = desk.verify()
    assert (status, Flaw.ALTERED in err) == (1, True)


def test_it_is_verified_with_nothing_of_the_cloud(desk: Desk) -> None:
    desk.issue()
    program = (
        "import sys\nfrom eventplane.__main__ import main\nstatus = main(sys.argv[1:])\n"
        "assert not {'boto3', 'botocore', 'glue_jobs', 'lambdas'} & {*sys.modules}, 'it needs the cloud'\n"
        "raise SystemExit(status)"
    )
    words = ["certificate", "verify", str(desk.document), "--key", str(desk.public)]
    subprocess.run([sys.executable, "-c", program, *words], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.lost_answers
def test_a_key_of_kms_signs_as_a_file_does(aws: None) -> None:
    kms = Cloud(boto3.Session(region_name="us-east-1")).client("kms")
    made = kms.create_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256")["KeyMetadata"]
    signer = _KmsSigner(kms, made["Arn"])
    signer.public.verify(signer.sign(bytes(32)), bytes(32), ALGORITHM)


@pytest.mark.parametrize("content", [b"", b"secret", b"-----BEGIN PUBLIC KEY-----\n"])
def test_a_bad_key_is_refused(desk: Desk, content: bytes) -> None:
    desk.issue()
    desk.public.write_bytes(content)
    assert "cannot be used" in desk.verify()[2]
    (desk.document.parent / "bad").write_bytes(content)
    assert desk.issue(key="bad")[::2] != (0, "")


def test_the_key_is_for_its_owner_only(desk: Desk) -> None:
    desk.issue()
    assert (desk.document.parent / "key").stat().st_mode & 0o777 == 0o600
