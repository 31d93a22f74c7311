"""Calls from programs to AWS: each takes time, lets other tasks run, and can fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from botocore.exceptions import ClientError, EndpointConnectionError

from lab.histories.engine import Engine
from lambdas.common.aws import ATTEMPTS, Timeouts
from parts.simulate.timeline import Killed
from tests.fakes.client import FakeClient


class CurrentFaults:
    """The current faults.

    `dead` counts the calls of a program up to the one at which it ends, `lost` and `refused` those up to the
    last that fails; of a "program operation" only the last one counted fails.
    """

    def __init__(self, engine: Engine, random: Random) -> None:
        self.engine = engine
        self.share = random.random
        self.draw = random.randbytes
        self.down: set[str] = set()
        self.paused: set[str] = set()
        self.throttled: set[str] = set()
        self.slow: defaultdict[str, float] = defaultdict(float)
        self.lost: defaultdict[str, int] = defaultdict(int)
        self.dead: defaultdict[str, int] = defaultdict(int)
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.deaths: defaultdict[str, int] = defaultdict(int)

    def meets(self, kind: defaultdict[str, int], program: str, operation: str = "") -> bool:
        """Count a call of `program`; return whether it fails: the last one, and by chance those before."""
        if not kind:
            return False
        if kind.get(call := f"{program} {operation}"):
            kind[call] -= 1
            return kind[call] == 0
        if not kind.get(program):
            return False
        kind[program] -= 1
        return kind[program] == 0 or (kind is not self.dead and self.share() < 0.5)


class Wire:
    """A client of `service` for `program`, which calls the model `client`; its calls take `patience`."""

    def __init__(
        self, weather: CurrentFaults, program: str, service: str, client: Any, patience: Timeouts
    ) -> None:
        self._weather = weather
        self._program = program
        self._service = service
        self._client = client
        self._read_s = patience.read_s

    def get_paginator(self, operation: str) -> Any:
        return FakeClient.get_paginator(cast("FakeClient", self), operation)

    def __getattr__(self, operation: str) -> Any:
        found = getattr(self._client, operation)
        if not callable(found):
            return found

        call = self.__dict__[operation] = partial(self._call, operation, found)
        return call

    def _call(self, operation: str, found: Callable[..., Any], /, **request: Any) -> Any:
        weather, program = self._weather, self._program
        engine = weather.engine
        for attempt in range(1, ATTEMPTS + 1):
            engine.sleep(0.002 + (0.02 + weather.slow[self._service]) * weather.share())
            if self._service in weather.down:
                engine.sleep(self._read_s)
                if attempt == ATTEMPTS:
                    raise EndpointConnectionError(endpoint_url=f"https://{self._service}")
                continue
            if operation in weather.throttled or weather.meets(weather.refused, program, operation):
                engine.note(program, f"{operation} is refused", is_fault=True)
                error = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
                raise ClientError(error, operation)
            loses = weather.meets(weather.lost, program, operation)
            dies = weather.meets(weather.dead, program, operation)
            weather.deaths[program] += dies
            if dies and weather.share() < 0.5:
                raise Killed
            answer: Any = {}
            error_raised = None
            try:
                answer = found(**request)
            except ClientError as error:
                error_raised = error
            if dies:
                raise Killed
            if loses:
                engine.note(program, f"the answer to {operation} is lost", is_fault=True)
                engine.sleep(self._read_s)
                continue
            engine.sleep(0.002 + 0.02 * weather.share())
            if error_raised is not None:
                raise error_raised
            return {**answer, "ResponseMetadata": {"RetryAttempts": attempt - 1}}
        raise EndpointConnectionError(endpoint_url=f"https://{self._service}")
