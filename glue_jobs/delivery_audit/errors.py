"""Why an audit cannot be made; each error carries its data and says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from eventplane.errors import EventPlaneError


class AuditError(EventPlaneError):
    """The audit cannot say anything about this archive."""


class NoArchiveError(AuditError):
    """There is neither a tap nor a ledger beneath `uri`."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{uri}: no archive here, neither tap/ nor ledger/; give --INPUT the folder that holds both"
        )
        self.uri = uri


class NoContractError(AuditError):
    """The archive lacks the contracts of `versions`; none is named when it holds no contract at all."""

    def __init__(self, uri: str, versions: Sequence[str] = ()) -> None:
        which = (
            f"lacks contract {', '.join(versions)}, which its ledger names"
            if versions
            else "holds no contract"
        )
        super().__init__(f"{uri}: the archive {which}; put the compiled contract there as <version>.json")
        self.uri = uri
        self.versions = tuple(versions)


class AlteredContractError(AuditError):
    """The file of contract `version` at `uri` has content whose hash is `found`."""

    def __init__(self, uri: str, version: str, found: str) -> None:
        super().__init__(
            f"{uri}: this is contract {found}, not {version}; its content was altered or misnamed, "
            "restore the compiled contract that was deployed"
        )
        self.uri = uri
        self.version = version
        self.found = found


class EmptyWindowError(AuditError):
    """The archive at `uri` has not one row of the days `window`."""

    def __init__(self, uri: str, window: str) -> None:
        super().__init__(
            f"{uri}: nothing was accepted in the window {window!r}; choose a --DATE with events, or 'all'"
        )
        self.uri = uri
        self.window = window


class FleetListError(AuditError):
    """The list of expected devices, `name`, cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"{name}: {problem}; a list has a line of JSON with thing, state and since_ms for each device"
        )
        self.name = name


class OtherArchiveError(AuditError):
    """The last audit of `window` judged `objects` objects, and the archive has none of them."""

    def __init__(self, window: str, objects: int) -> None:
        super().__init__(
            f"the last audit of {window!r} in --OUTPUT judged {objects} objects, and --INPUT has none of "
            "them; give another archive another --OUTPUT, or restore the objects"
        )
        self.window = window
        self.objects = objects


class OutboxError(AuditError):
    """The audit is made and filed, and its verdict could not be sent to `queue_url`."""

    def __init__(self, queue_url: str, problem: str) -> None:
        super().__init__(
            f"the report is filed, but the verdict was not sent to {queue_url}: {problem}; "
            "allow the job to send there, and start it again"
        )
        self.queue_url = queue_url


class UnsupportedExpressionError(AuditError):
    """Spark would not decide as the routers do, because of `what` in the CESQL `expression`."""

    def __init__(self, expression: str, what: str, remedy: str) -> None:
        super().__init__(f"the audit cannot evaluate {expression!r:.200}: it has {what}; {remedy}")
        self.expression = expression
        self.what = what
