"""`python -m benchmarks.plane_size`: the largest and the smallest plane, and how long production's roll-outs
take, to build/bench/plane_size.json. A plane grows by cloud services until synthesis refuses it.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.results import Figure
from benchmarks.runner import Benchmark
from contract import load_contract
from eventplane.contract import Contract, ParticipantKind, compile_contract
from stacks.config import environment
from stacks.rules import TemplateRuleError, check, templates
from tests.infrastructure.templates import Templates

MOST: Final = 100
"""Services beside the shipped ones with which a search begins; no plane has them."""


def with_services(number: int, characters: int = 17, *, ask: bool = True, routes: int = 0) -> Contract:
    """Return the shipped contract with `number` more cloud services, which may `ask` all, and `routes`."""
    document = json.loads(load_contract().canonical)
    document["participants"] |= {
        f"s{each:03}-".ljust(characters, "x"): {
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


def smallest() -> Templates:
    """Return the templates of two cloud services in `dev`, without the parts that one can leave out."""
    service = {"kind": "cloud_service", "description": "One of two."}
    participants = {"device": {"kind": "device", "description": "A home."}, "one": service, "two": service}
    document = {
        "format": 7,
        "name": "small",
        "participants": participants,
        "event_types": {"org.example.ring.v1": {"description": "Somebody rang."}},
        "routes": {"rings": {"filter": {"exact": {"type": "org.example.ring.v1"}}, "to": "two.inbox"}},
    }
    settings = replace(environment("dev").with_placeholders(), parts=frozenset())
    return Templates(settings, compile_contract(document, "test"))


def resources() -> Iterator[Figure]:
    """Yield the resources and functions of the smallest plane and of production, and how long it deploys."""
    prod = Templates(environment("prod"), load_contract())
    for name, plane, most in (("smallest", smallest(), (150, 7)), ("prod", prod, (450, None))):
        found, functions = len(plane.of()), len(plane.functions)
        yield Figure(f"{name}_resources", found, "resources", most[0], higher_is_better=False)
        yield Figure(f"{name}_functions", functions, "functions", most[1], higher_is_better=False)
    yield Figure(
        "minutes_to_deploy_a_change_of_the_core",
        prod.rollout_minutes,
        "min",
        25,
        note="computed: production's roll-outs, one after the other where one needs the other",
    )


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
    | {"resources": lambda _: resources()},
    "none: sizes of templates",
    {"--most": {"type": int, "default": MOST}},
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
