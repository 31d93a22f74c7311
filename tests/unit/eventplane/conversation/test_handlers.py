"""Who is expected to answer, by the contract."""

import pytest

from eventplane.contract import compile_contract
from eventplane.conversation.handlers import Handlers, NoAskerError, NotOneDeviceError
from eventplane.envelope import Envelope, write_event
from tests.small_contract import with_changes
from tests.unit.eventplane.conversation.worlds import ask, document, plane


def names(event: Envelope, asker: str) -> set[str]:
    return {str(each) for each in Handlers(plane()).of(event, asker)}


@pytest.mark.parametrize(
    ("asker", "attributes", "expected"),
    [
        ("button", {}, {"lamp"}),
        ("button", {"loud": True}, {"lamp", "chime"}),
        # Across: functions of the plane and webhooks do not answer.
        ("button", {"far": True}, {"lamp", "desk", "porter"}),
        # What would go on to other devices is waited for by nobody.
        ("button", {"far": True, "near": True}, {"lamp", "desk", "porter"}),
        # Nobody answers itself.
        ("desk", {}, {"porter"}),
        ("desk", {"near": True, "todevice": "home-7"}, {"porter", "home-7/lamp"}),
    ],
)
def test_handlers_are_expected(asker: str, attributes: dict[str, str | bool], expected: set[str]) -> None:
    assert names(ask(**attributes), asker) == expected


FROM_BUTTON = {"exact": {"senderservice": "button"}}
FROM_HOME_1 = {"all": [FROM_BUTTON, {"exact": {"senderdevice": "home-1"}}]}


@pytest.mark.parametrize(
    ("asker", "at_lamp", "at_porter", "expected"),
    [
        ("button", FROM_BUTTON, FROM_HOME_1, {"lamp", "porter"}),
        ("button", {"not": FROM_BUTTON}, {"not": FROM_HOME_1}, set()),
        # In the cloud a sender has no device.
        ("desk", FROM_BUTTON, FROM_HOME_1, set()),
        ("desk", {"not": FROM_BUTTON}, {"not": FROM_HOME_1}, {"home-1/lamp", "porter"}),
        # On its device, too: the router in the cloud stamps that.
        ("button", {"not": FROM_HOME_1}, FROM_BUTTON, {"lamp", "porter"}),
    ],
)
@pytest.mark.parametrize("claimed", [{}, {"senderservice": "chime", "senderdevice": "home-666"}])
def test_routes_that_read_the_sender_read_the_asker(
    asker: str, at_lamp: object, at_porter: object, expected: set[str], claimed: dict[str, str]
) -> None:
    some = document()
    del some["routes"]["to-desk"]
    for route, filter in (("to-lamp", at_lamp), ("to-porter", at_porter)):
        some["routes"][route]["filter"] = {"all": [some["routes"][route]["filter"], filter]}
    event = ask(far=True, near=True, todevice="home-1", **claimed)
    thing = "home-1" if asker == "button" else ""
    found = Handlers(compile_contract(some, "talk")).of(event, asker, thing)
    assert {str(each) for each in found} == expected


def test_the_interest_of_the_cloud_reads_the_event_as_it_is_there() -> None:
    """As the device itself decides whether it sends the request up (`edge.decision`)."""

    up = plane().device.outbox.address

    def wants(address: str, event: Envelope, _priority: object) -> bool:
        return address != up or event.attributes.get("senderdevice") == "home-1"

    asked = Handlers(plane(), wants)
    assert {str(each) for each in asked.of(ask(far=True), "button", "home-1")} == {"lamp", "desk", "porter"}
    assert {str(each) for each in asked.of(ask(far=True), "button", "home-2")} == {"lamp"}


def test_a_request_goes_down_to_one_device() -> None:
    for attributes in ({}, {"todevice": "*"}, {"togroup": "ward"}):
        with pytest.raises(NotOneDeviceError, match="todevice"):
            names(ask(near=True, **attributes), "desk")


def test_only_participants_that_declare_it_may_ask() -> None:
    other = write_event({"id": "1", "source": "/a", "type": "org.example.other.v1"})
    assert names(other, "desk") == set()
    for asker, event in (("lamp", ask()), ("button", other), ("nobody", ask())):
        with pytest.raises(NoAskerError, match=f"participants.{asker}"):
            names(event, asker)


def test_a_participant_without_interest_is_not_expected_to_answer() -> None:
    handlers = Handlers(
        plane(), lambda address, event, _priority: address != f"{event.attributes['not']}.inbox"
    )
    for other, expected in (("lamp", {"chime"}), ("chime", {"lamp"}), ("device", {"lamp", "chime"})):
        found = handlers.of(ask(loud=True, **{"not": other}), "button")
        assert {str(each) for each in found} == expected


def test_only_home_services_answer_the_device() -> None:
    leaving = ("participants/downlink", "routes/to-downlink", "routes/down")
    handlers = Handlers(with_changes(plane(), dict.fromkeys(leaving)))
    assert {str(each) for each in handlers.of(ask(far=True), "button")} == {"lamp"}
    assert names(ask(far=True), "button") > {"lamp"}
