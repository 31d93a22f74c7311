"""What the histories' oracle says of keys when devices, registry or commands are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.provisioning.renewal import Identity, Renewal
from lambdas.fleet.rotation import CertificateRotation
from local.histories.search import told
from local.histories.story import Decision, Story
from operations.fleet import service
from tests.plane import shipped_contract

pytestmark = pytest.mark.long

STAGE = Identity.stage


def overwriting(self: Identity, private_key: str, certificate: str) -> Path:
    self.drop(self.unproven())
    return STAGE(self, private_key, certificate)


def deeds(*those: tuple[float, str, str]) -> Story:
    return Story(1, 0, tuple(Decision(at_s, what, "home-1", text=text) for at_s, what, text in those))


THEFT = deeds(
    (10.0, "key", "is stolen"),
    (20.0, "thief", "renews"),
    (25.0, "thief", "connects"),
    (40.0, "thief", "renews"),
    (60.0, "fleet", "recover"),
    (60.1, "thief", "renews"),
    (200.0, "thief", "connects"),
    (260.0, "thief", "renews"),
)
CLAIM = deeds(
    (5.0, "key", "is lost"),
    (20.0, "fleet", "allow-replacement"),
    *((20.0 + 0.5 * number, "thief", "claims") for number in range(1, 16)),
    (300.0, "key", "is looked at"),
)
KEPT = deeds(
    (5.0, "fleet", "allow-replacement"),
    (10.0, "thief", "claims"),
    (12.0, "thief", "connects"),
    (60.0, "fleet", "recover --keep"),
    (200.0, "thief", "connects"),
)
PROOF = Story(
    1,
    6,
    (
        *deeds((19.0, "key", "is due"), (300.0, "key", "is looked at")).decisions,
        Decision(18.0, "lose-answer", "home-1 proof", 4),
    ),
)
LOCKED_OUT = "a device is locked out"
IN_THE_END, AFTERWARDS = "a thief's key is good in the end", "a thief's key is good afterwards"


@pytest.mark.parametrize(
    ("story", "where", "name", "wrong", "kinds"),
    [
        *((each, service, "recovered", service.recovered, set()) for each in (THEFT, CLAIM, KEPT, PROOF)),
        (PROOF, Identity, "stage", overwriting, {LOCKED_OUT}),
        (THEFT, Renewal, "_is_refused", lambda _: False, {LOCKED_OUT}),
        (CLAIM, CertificateRotation, "_retire", lambda *_: None, {IN_THE_END}),
        (THEFT, service, "recovered", lambda device, *_: device, {IN_THE_END, AFTERWARDS}),
    ],
)
def test_the_oracle_finds_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, story: Story, where: Any, name: str, wrong: Any, kinds: set[str]
) -> None:
    monkeypatch.setattr(where, name, wrong)
    found = {each.kind for each in told(story, shipped_contract()).findings}
    assert kinds <= found if kinds else not found
