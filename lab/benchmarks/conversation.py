"""`python -m lab.benchmarks.conversation [PART ...]`: request and reply; build/bench/conversation.json.

On the device, from the cloud into a home, and from a home into the cloud: how long a request takes until its
replies are there.
"""

import itertools
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter

from contract import load_contract
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.conversation.messages import Status
from eventplane.conversation.open_requests import Replies
from eventplane.envelope import Envelope, write_event
from eventplane_client import Client, ClientSettings, Mode, connect
from lab.benchmarks.cloud.plane import deployed_plane
from lab.benchmarks.edge.parts import site, start_forwarder
from lab.benchmarks.results import Benchmark, Figure, percentiles
from lab.services import Service, answering
from tests.integration import downlink
from tests.integration.downlink import MESSAGE, Home

HOME = "conversation"
ALARM = "org.eventplane.alarm.keyword.v1"
WARM_UP = 5
_SECONDS = 120.0
_numbers = itertools.count(1)


def device(options: Namespace) -> list[Figure]:
    """Voice service to call service, over Mosquitto and the forwarder's spool; no cloud is reached."""
    with site() as here:
        home = start_forwarder(here, "home", contract=_at_home())
        with (
            closing(Service("call-service", home.port, lambda event: event.id)),
            closing(Service("voice-service", home.port)) as voice,
        ):
            times = _times(
                lambda: _expect(voice.client.request(_alarm(), _SECONDS), {"call-service"}), options.requests
            )
        return _figures("device", times, "two events kept in the spool, in order of priority")


def across(options: Namespace) -> list[Figure]:
    """Carers to a home, and a home to its call service and two services in the cloud."""
    with deployed_plane() as run:
        cloud = run.plane.cloud
        os.environ.update(cloud.environment())
        contract = run.directory / "contract.json"
        contract.write_bytes(load_contract().canonical)
        register = [sys.executable, "-m", "eventplane", "fleet", "register", HOME, "--env", "local"]
        subprocess.run(register, check=True, capture_output=True)
        with downlink.running_home(run.plane, run.supervisor, run.directory / HOME, HOME) as home:
            return [
                *from_the_cloud(home, contract, options.across),
                *from_a_home(home, options.across),
            ]


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
    with ExitStack() as stack:
        for name in ("alarm-centre", "family-app"):
            inbox = stack.enter_context(_client(name)).subscribe()
            stack.enter_context(answering(inbox, lambda event: event.id))
        times = _times(lambda: _expect(voice.request(_alarm(), _SECONDS), everybody), requests)
    return _figures("home_to_cloud", times, "until the last of three has replied; emulated as above")


def _at_home() -> Contract:
    """The shipped contract, in which alarms stay at home."""
    document = contract_document(load_contract())
    document["routes"]["everything-to-cloud"]["filter"]["all"].append({"not": {"exact": {"type": ALARM}}})
    return compile_contract(document, "at home")


def _client(participant: str, contract: str = "") -> Client:
    return connect(ClientSettings("sqs:local", participant, mode=Mode.AT_LEAST_ONCE, contract=contract))


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


def _figures(name: str, times: Sequence[float], note: str) -> list[Figure]:
    note = f"request to last reply, {len(times)} one by one; {note}"
    return list(percentiles(f"{name}_{{}}", times, "ms", note))


BENCHMARK = Benchmark(
    "conversation",
    {"device": device, "across": across},
    "wall clock",
    {
        "--requests": {"type": int, "default": 300, "help": "on the device"},
        "--across": {"type": int, "default": 50, "help": "of each kind through the local cloud"},
    },
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
