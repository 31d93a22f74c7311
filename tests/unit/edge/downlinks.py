"""Events as the cloud sends them to a device."""

from typing import Any

from eventplane.contract import Downlink
from eventplane.downlink.wire import stamped
from eventplane.envelope import write_event
from tests.unit.edge.fakes import READING

KEY = "setting/climate/threshold"


def state(
    version: int,
    key: str = KEY,
    *,
    deleted: bool = False,
    data: Any = None,
    type: str = READING,
    id: str = "",
    fence: int = 1,
    reset: int = 0,
    **attributes: Any,
) -> str:
    """Version `version` of a state; its subject leads it to the display."""
    attributes = {**_names(id or f"v{version}", type), **attributes}
    return stamped(
        write_event(attributes, data).json,
        kind=Downlink.STATE,
        key=key,
        uid="",
        version=version,
        is_deleted=deleted,
        order=0,
        fence=fence,
        reset=reset,
    )


def command(order: int, key: str = "command/app/ring", *, type: str = READING, **attributes: Any) -> str:
    """The command number `order` of a key."""
    attributes = {**_names(f"c{order}", type), **attributes}
    return stamped(
        write_event(attributes).json,
        kind=Downlink.COMMAND,
        key=key,
        uid="",
        version=1,
        is_deleted=False,
        order=order,
        fence=1,
    )


def _names(id: str, type: str) -> dict[str, Any]:
    return {"id": id, "source": "/app", "type": type, "subject": "show", "senderservice": "app"}
