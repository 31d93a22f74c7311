"""A proof of what was never planted is none."""

from benchmarks.audit.comparison import Score
from benchmarks.audit.proof import PLANTED, Proof

WRITTEN = {"unseen": 0}
GOOD = {name: Score(planted=2, found=2) for name in PLANTED}


def test_each_kind_at_each_hop_has_to_be_planted_and_found() -> None:
    assert Proof(WRITTEN, {}, GOOD, 0).wrong == {}
    assert set(Proof(WRITTEN, {}, {}, 0).wrong) == PLANTED
    missed = Score(planted=1, missed=[("lost", "router")])
    invented = Score(planted=1, found=2, invented=[("late", "router")])
    wrong = Proof(WRITTEN, {}, {**GOOD, "lost router": missed, "late router": invented}, 0).wrong
    assert wrong == {"lost router": missed.document(), "late router": invented.document()}
