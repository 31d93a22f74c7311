"""A proof of what was never planted is none."""

from benchmarks.audit.comparison import Score
from benchmarks.audit.proof import PLANTED, Proof

GOOD = {name: Score(planted=2, found=2) for name in PLANTED}


def test_each_kind_at_each_hop_has_to_be_planted_and_found() -> None:
    assert Proof({}, GOOD).wrong == {}
    assert set(Proof({}, {}).wrong) == PLANTED
    missed = Score(planted=1, missed=[("lost", "router")])
    invented = Score(planted=1, found=2, invented=[("late", "router")])
    wrong = Proof({}, {**GOOD, "lost router": missed, "late router": invented}).wrong
    assert wrong == {"lost router": missed, "late router": invented}
