"""Taking a certificate out of service at AWS IoT."""

from __future__ import annotations

from typing import Any


class Certificates:
    """Through a boto3 IoT client. `arn_prefix` is what certificates' ARNs start with (`arn:...:cert/`)."""

    def __init__(self, client: Any, arn_prefix: str) -> None:
        self._client = client
        self._arn_prefix = arn_prefix

    def suspend(self, certificate: str) -> None:
        """Deactivate `certificate`, which can be activated again.

        Repeating it changes nothing, and one that is gone is skipped. Raises botocore's errors.
        """
        try:
            self._client.update_certificate(certificateId=certificate, newStatus="INACTIVE")
        except self._client.exceptions.ResourceNotFoundException:
            return

    def retire(self, thing: str, certificate: str) -> None:
        """Deactivate `certificate`, which ends its connections within minutes, and detach it from `thing`.

        Repeating it changes nothing; one that is gone is retired. Raises botocore's errors.
        """
        missing = self._client.exceptions.ResourceNotFoundException
        try:
            # First: only this locks out whoever has the key.
            self._client.update_certificate(certificateId=certificate, newStatus="INACTIVE")
            self._client.detach_thing_principal(thingName=thing, principal=self._arn_prefix + certificate)
        except missing:
            return
