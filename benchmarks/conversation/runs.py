"""How long a request takes until its replies are there."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from benchmarks.conversation.by_hand import peer
from benchmarks.results import Figure
from contract import load_contract
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.conversation.messages import Status
from eventplane.conversation.open_requests import Replies
from eventplane.envelope import Envelope, write_event
from eventplane_client import Client, ClientSettings, Mode, connect
from local.certificates import Authority
from local.mosquitto import start_mosquitto
from local.process import Supervisor
from local.services import Service
from tests.integration.downlink import MESSAGE, Home
from tests.integration.edge.conftest import start_home

ALARM = "org.eventplane.alarm.keyword.v1"
WARM_UP = 5
_SECONDS = 120.0
_numbers = itertools.count(1)


def on_the_device(supervisor: Supervisor, directory: Path, requests: int) -> list[Figure]:
    """Voice service to call service, over Mosquitto and the forwarder's spool; no cloud is reached."""
    broker = start_mosquitto(supervisor, "home", directory / "mosquitto")
    home = start_home(supervisor, broker, directory, 1, Authority(directory / "tls"), contract=_at_home())
    home.listen("call-service", lambda event: event.id)
    with peer(broker.port) as by_hand:
        voice = home.connect("voice-service")
        ours = _times(lambda: _expect(voice.request(_alarm(), _SECONDS), {"call-service"}), requests)
        payload = _alarm().json.encode()
        theirs = _times(lambda: by_hand.request(payload), requests)
    home.close()
    return _figures(
        "device", ours, "two events kept in the spool, in order of priority", "MQTT 5 by hand", theirs
    )


def from_the_cloud(home: Home, contract: Path, requests: int) -> list[Figure]:
    """Carers ask, the voice service of a home answers."""
    with _client("carers", str(contract)) as carers:
        times = _times(lambda: _expect(carers.request(_message(home), _SECONDS), {"voice-service"}), requests)
    return _figures("cloud_to_home", times, "emulated queues, functions and IoT Core")


def from_a_home(home: Home, requests: int) -> list[Figure]:
    """The voice service asks; the call service at home and two services in the cloud answer."""
    home.services["call-service"] = Service("call-service", home.broker.port, lambda event: event.id).client
    everybody = {"call-service", "alarm-centre", "family-app"}
    voice = home.services["voice-service"]
    with _answering("alarm-centre"), _answering("family-app"):
        times = _times(lambda: _expect(voice.request(_alarm(), _SECONDS), everybody), requests)
    return _figures("home_to_cloud", times, "until the last of three has replied; emulated as above")


def _at_home() -> Contract:
    """The shipped contract, in which alarms stay at home."""
    document = contract_document(load_contract())
    document["routes"]["everything-to-cloud"]["filter"]["all"].append({"not": {"exact": {"type": ALARM}}})
    return compile_contract(document, "at home")


@contextmanager
def _answering(participant: str) -> Iterator[None]:
    with _client(participant) as client:
        inbox = client.subscribe()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                inbox.handle(lambda event: event.id, idle_s=1.0)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _client(participant: str, contract: str = "") -> Client:
    return connect(ClientSettings(participant, "sqs:local", mode=Mode.AT_LEAST_ONCE, contract=contract))


def _alarm() -> Envelope:
    attributes = {"id": f"a{next(_numbers)}", "source": "/benchmark/voice-service", "type": ALARM}
    return write_event(attributes, {"keyword": "help"})


def _message(home: Home) -> Envelope:
    attributes = {"id": f"m{next(_numbers)}", "source": "/benchmark/carers", "type": MESSAGE}
    return write_event({**attributes, "todevice": home.name}, {"text": "Are you well?"})


def _expect(replies: Replies, names: set[str]) -> None:
    if {*replies} != names or any(each.status is not Status.HANDLED for each in replies.values()):
        raise SystemExit(f"these replies came: {replies}")


def _times(request: Callable[[], None], number: int) -> list[float]:
    """Milliseconds of each, one after the other."""
    for _ in range(WARM_UP):
        request()
    times = []
    for _ in range(number):
        began = perf_counter()
        request()
        times.append(1_000 * (perf_counter() - began))
    return times


def _figures(
    name: str, times: Sequence[float], note: str, peer: str | None = None, theirs: Sequence[float] = ()
) -> list[Figure]:
    found = []
    for at, percent in ((49, "p50"), (98, "p99")):
        found.append(
            Figure(
                f"{name}_{percent}",
                quantiles(times, n=100, method="inclusive")[at],
                "ms",
                higher_is_better=False,
                peer=peer,
                peer_value=quantiles(theirs, n=100, method="inclusive")[at] if theirs else None,
                note=f"request to last reply, {len(times)} one by one; {note}",
            )
        )
    return found
