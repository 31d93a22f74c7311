"""AWS in memory, for tests of our decisions: the clients of one account, and their one clock.

They take and return what boto3's clients do, and refuse what AWS refuses. `tests/integration/histories` runs
the same scenarios over them and over the emulated cloud.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from botocore.credentials import Credentials

from tests.fakes.client import REGION, FakeClient
from tests.fakes.clock import FakeClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.iot import FakeIot
from tests.fakes.s3 import FakeS3
from tests.fakes.secrets import FakeSecrets
from tests.fakes.sqs import FakeSqs
from tests.fakes.sts import FakeParameters, FakeSts


class FakeAws:
    """What the clients of one account share; `clock` is everybody's.

    `others` are clients of services that are not faked, by the services' names.
    """

    def __init__(self, **others: Any) -> None:
        self.clock = FakeClock()
        self.sqs = FakeSqs(self.clock)
        self.dynamodb = FakeDynamoDb()
        self.s3 = FakeS3(self.clock)
        self.secrets = FakeSecrets()
        self.iot = FakeIot()
        self.sts = FakeSts()
        self.parameters = FakeParameters()
        self.others = others

    def client(self, service: str, *_: Any, **__: Any) -> Any:
        """The client of `service`: what `boto3.client` and a session of botocore make."""
        known: Iterable[FakeClient] = (
            *(self.sqs, self.dynamodb, self.s3, self.secrets),
            *(self.iot, self.sts, self.parameters),
        )
        found = {each.service: each for each in known} | self.others
        return found[service]

    create_client = client

    # As a session of boto3.

    region_name = REGION

    def get_credentials(self) -> Any:
        """Credentials that nothing checks."""
        return Credentials("testing", "testing")
