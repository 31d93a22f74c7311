"""`python -m parts.webhooks URL --origin NAME`: ask an endpoint whether it wants our events.

Exit status 0 when it does, 1 when it does not, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlsplit

from eventplane.sinks import ANYWHERE, MAX_PORT, url_problem
from lambdas.common.system import system_clock
from parts.webhooks.endpoint import HttpSink, UnreachableError
from parts.webhooks.handshake import ask_consent

_TIMEOUT_S = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m parts.webhooks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("url", type=_address, help="as in webhook_urls of stacks/environments.toml")
    parser.add_argument("--origin", required=True, help="the sender's name: eventplane-ENV-SERVICE")
    parser.add_argument("--rate", type=int, help="requests_per_minute of the contract")
    given = parser.parse_args(arguments)
    with closing(HttpSink(given.url, timeout_s=_TIMEOUT_S, clock=system_clock, reach=ANYWHERE)) as endpoint:
        try:
            consent = ask_consent(endpoint, given.origin, given.rate)
        except UnreachableError as error:
            print(f"no consent: {error}")
            return 1
    if not consent.is_given:
        print(f"no consent: HTTP {consent.status} without WebHook-Allowed-Origin for us; ask its owner")
        return 1
    limit = consent.requests_per_minute
    print("consent" + (f" to {limit} requests a minute" if limit is not None else ""))
    if limit is not None and (given.rate is None or given.rate > limit):
        print(f"set `requests_per_minute: {limit}` in the contract")
        return 1
    return 0


def _address(url: str) -> str:
    """Read an address that a deployment takes, or one of an endpoint on this machine."""
    is_here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    if problem := url_problem(url, is_emulated=is_here, ports=range(1, MAX_PORT + 1)):
        raise argparse.ArgumentTypeError(f"{url!r} {problem}; name the endpoint as https://HOST/PATH")
    return url


if __name__ == "__main__":
    sys.exit(main())
