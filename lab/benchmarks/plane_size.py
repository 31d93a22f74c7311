"""`python -m lab.benchmarks.plane_size`: the largest and the smallest plane, the smallest one's forwarder,
and how long production's roll-outs take, to build/bench/plane_size.json.

A plane grows by cloud services with names of 17 characters until synthesis refuses it.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from contract import load_contract
from eventplane.contract import Contract, ParticipantKind, compile_contract
from lab.benchmarks.edge.parts import BenchPublisher, SinkProcess, site, start_forwarder
from lab.benchmarks.edge.sink import READING, events
from lab.benchmarks.processes import rss_mib
from lab.benchmarks.results import Benchmark, Figure
from lab.tools.device_image import PARTS
from parts.imports import imported, sources
from stacks.config import environment
from stacks.rules import TemplateRuleError, check, templates
from tests.infrastructure.templates import Templates

MOST: Final = 100
"""Services beside the shipped ones with which a search begins; no plane has them."""


def with_services(number: int, *, ask: bool = True, routes: int = 0) -> Contract:
    """Return the shipped contract with `number` more cloud services, which may `ask` all, and `routes`."""
    document = json.loads(load_contract().canonical)
    document["participants"] |= {
        f"s{each:03}-".ljust(17, "x"): {
            "kind": "cloud_service",
            "description": "One of many.",
            "asks": ["org.example.*"] if ask else [],
        }
        for each in range(number)
    }
    for each in range(routes):
        type = f"org.example.t{each}.v1"
        document["event_types"][type] = {"description": "One of many."}
        document["routes"][f"r{each}"] = {"filter": {"exact": {"type": type}}, "to": "family-app.inbox"}
    return compile_contract(document, "test")


def refusal(name: str, contract: Contract) -> TemplateRuleError | None:
    """Return why AWS would refuse the environment `name` with `contract`, None where it would not."""
    try:
        for each in templates(Templates(environment(name), contract).directory):
            check(each, None)
    except TemplateRuleError as error:
        return error
    return None


def smallest_document() -> dict[str, Any]:
    """Return a contract of two cloud services."""
    service = {"kind": "cloud_service", "description": "One of two."}
    participants = {"device": {"kind": "device", "description": "A home."}, "one": service, "two": service}
    return {
        "format": 7,
        "name": "small",
        "participants": participants,
        "event_types": {"org.example.ring.v1": {"description": "Somebody rang."}},
        "routes": {"rings": {"filter": {"exact": {"type": "org.example.ring.v1"}}, "to": "two.inbox"}},
    }


def smallest() -> Templates:
    """Return the templates of two cloud services in `dev`, without the parts that one can leave out."""
    settings = replace(environment("dev").with_placeholders(), parts=frozenset())
    return Templates(settings, compile_contract(smallest_document(), "test"))


def forwarder() -> Iterator[Figure]:
    """Run the forwarder of the smallest plane, without its parts; yield what it imports and takes at rest."""
    document = smallest_document()
    document["participants"]["health-service"] = {"kind": "device_service", "description": "A sensor."}
    document["event_types"][READING] = {"description": "It has measured."}
    document["routes"]["up"] = {"filter": {"exact": {"type": READING}}, "to": "device.outbox"}
    with site(PARTS) as here, SinkProcess(here, 2) as sink:
        python, *rest = here.program
        at_rest = replace(here, program=(python, "-X", "importtime", *rest))
        child = start_forwarder(at_rest, "smallest", contract=compile_contract(document, "test"))
        with BenchPublisher(child.port) as publisher:
            publisher.send_all(events(range(2), 256))
        sink.report()
        files = sources(Path(__file__).parents[2], imported(child.child.log.read_text()))
        lines = sum(len(each.read_text().splitlines()) for each in files)
        yield Figure("forwarder_modules", len(files), "modules", 65)
        yield Figure("forwarder_lines", lines, "lines", 12_000)
        yield Figure("forwarder_rss", rss_mib(child.pid), "MiB", 22.0, note="over TLS, after traffic")


def resources() -> Iterator[Figure]:
    """Yield the resources and functions of the smallest plane and of production, and how long it deploys."""
    prod = Templates(environment("prod"), load_contract())
    for name, plane, most in (("smallest", smallest(), (150, 7)), ("prod", prod, (450, None))):
        found, functions = len(plane.of()), len(plane.functions)
        yield Figure(f"{name}_resources", found, "resources", most[0])
        yield Figure(f"{name}_functions", functions, "functions", most[1])
    note = "computed: production's roll-outs, one after the other where one needs the other"
    yield Figure("minutes_to_deploy_a_change_of_the_core", prod.rollout_minutes, "min", 25, note=note)


def largest(name: str, options: Namespace, *, ask: bool) -> Iterator[Figure]:
    """Search the largest plane of the environment `name`, and yield its number of services."""
    fits, too_many, why = 0, options.most, None
    while too_many - fits > 1:
        number = (fits + too_many) // 2
        if error := refusal(name, with_services(number, ask=ask)):
            too_many, why = number, error
        else:
            fits = number
    services = len(list(with_services(fits, ask=ask).of_kind(ParticipantKind.CLOUD_SERVICE)))
    kind = "asking_services" if ask else "services"
    note = (
        f"then: {why.rule.name} of {why.stack}, {why.size:,} of {why.rule.most:,}"
        if why
        else "all that were tried"
    )
    yield Figure(f"{name}_{kind}", services, "services", note=note)


BENCHMARK = Benchmark(
    "plane_size",
    {
        f"{name}-{'asking' if ask else 'plain'}": partial(largest, name, ask=ask)
        for name in ("dev", "prod")
        for ask in (False, True)
    }
    | {"resources": lambda _: resources(), "forwarder": lambda _: forwarder()},
    "none: sizes of templates, and of one process",
    {"--most": {"type": int, "default": MOST}},
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
