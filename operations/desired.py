"""The desired and reported state of a device, from the downlink's table."""

from __future__ import annotations

from collections.abc import Iterator

from eventplane.downlink.desired import Desired
from eventplane.downlink.table import DESIRED, TABLE
from eventplane.downlink.wire import ALL
from eventplane.records import Records
from eventplane.resource_names import resource_name
from operations.cloud import Cloud


def desired_items(cloud: Cloud, environment: str) -> Records[Desired]:
    """Return what devices of the environment shall have."""
    return Records(cloud.tables, resource_name(environment, TABLE), DESIRED)


def under(items: Records[Desired], key: str) -> Iterator[Desired]:
    """Yield the items of all devices under a key, of both kinds. Reads the whole table."""
    # What all were sent of the cloud's interest is no device's.
    return (each for each in items.all() if each.key == key and each.thing != ALL)
