import copy
import pickle
from typing import ClassVar

import pytest

from eventplane.errors import EventPlaneError


class QuotaError(EventPlaneError):
    who: str
    most: int
    unit: str = "events"
    message = "{who} has more than {most:,} {unit}; {remedy}"

    @property
    def remedy(self) -> str:
        return f"remove some of {self.who}"


class DeviceQuotaError(QuotaError):
    status: ClassVar[int] = 429
    device: str = "none"
    message = "{device}: {who} has more than {most:,}"


def test_the_message_is_the_filled_template():
    assert str(QuotaError("lamp", 1000)) == "lamp has more than 1,000 events; remove some of lamp"
    assert str(QuotaError(most=2, who="lamp", unit="routes")).startswith("lamp has more than 2 routes")


def test_a_subclass_adds_fields_behind_those_of_its_base():
    error = DeviceQuotaError("lamp", 7, device="d-1")
    assert (error.who, error.most, error.unit, error.device, error.status) == (
        "lamp",
        7,
        "events",
        "d-1",
        429,
    )
    assert str(error) == "d-1: lamp has more than 7"


def _pickled(error):
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("remake", [copy.copy, _pickled])
def test_an_error_survives_copying_and_pickling(remake):
    error = remake(QuotaError("lamp", 3, unit="routes"))
    assert (str(error), error.most) == (str(QuotaError("lamp", 3, "routes")), 3)


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), (("a",), {}), (("a", 1, "b", "c"), {}), (("a", 1), {"other": 1})]
)
def test_wrong_fields_are_refused_with_their_names(values, named):
    with pytest.raises(TypeError, match="who, most, unit"):
        QuotaError(*values, **named)


def test_a_value_with_braces_is_no_template():
    assert str(QuotaError("{most}", 1)).startswith("{most} has")
