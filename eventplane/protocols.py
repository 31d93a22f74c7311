"""The groups of entry points by which protocols are found. docs/protocols.md says how one is added.

The plane's own protocols are registered like those of other packages: in the `*.dist-info` beside a package.
"""

from __future__ import annotations

from typing import Final

TRANSPORTS: Final = "eventplane.transports"
"""What connects a client. The name is what the client's setting `transport` begins with, before a colon; the
object is an `eventplane_client.connectors.Connector`."""

SENDERS: Final = "eventplane.senders"
"""What routers write to a channel with. The name is the scheme of the channel's URL; the object is a function
without arguments that returns a `lambdas.common.sender.Sender`."""
