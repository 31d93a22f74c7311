"""Why an audit cannot be made; each error carries its data and says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from eventplane.errors import EventPlaneError


class AuditError(EventPlaneError):
    """The audit cannot say anything about this archive."""


class NoArchiveError(AuditError):
    """There is neither a tap nor a ledger beneath `uri`."""

    uri: str
    message = "{uri}: no archive here, neither tap/ nor ledger/; give --INPUT the folder that holds both"


class NoContractError(AuditError):
    """The archive lacks the contracts of `versions`; none is named when it holds no contract at all."""

    uri: str
    versions: Sequence[str] = ()
    message = "{uri}: the archive {lacks}; put the compiled contract there as <version>.json"

    @property
    def lacks(self) -> str:
        """The part that the archive lacks."""
        if not self.versions:
            return "holds no contract"
        return f"lacks contract {', '.join(self.versions)}, which its ledger names"


class AlteredContractError(AuditError):
    """The file of contract `version` at `uri` has content whose hash is `found`."""

    uri: str
    version: str
    found: str
    message = (
        "{uri}: this is contract {found}, not {version}; its content was altered or misnamed, restore the "
        "compiled contract that was deployed"
    )


class EmptyWindowError(AuditError):
    """The archive at `uri` has not one row of the days `window`."""

    uri: str
    window: str
    message = "{uri}: nothing was accepted in the window {window!r}; choose a --DATE with events, or 'all'"


class FleetListError(AuditError):
    """The list of expected devices, `name`, cannot be used."""

    name: str
    problem: str
    message = "{name}: {problem}; a list has a line of JSON with thing, state and since_ms for each device"


class DamagedReportError(AuditError):
    """The `report` on `window` is damaged, and the file `verdict` does not have its verdict either."""

    window: str
    report: str
    verdict: str
    message = (
        "the audit of {window!r} has nothing to follow: in --OUTPUT {report} is damaged and {verdict} lacks "
        "its verdict; restore an earlier version of either (operations.inbox received the verdict), or move "
        "the report away to begin anew"
    )


class OtherArchiveError(AuditError):
    """The last audit of `window` judged `objects` objects, and the archive has none of them."""

    window: str
    objects: int
    message = (
        "the last audit of {window!r} in --OUTPUT judged {objects} objects, and --INPUT has none of them; "
        "give another archive another --OUTPUT, or restore the objects"
    )


class OutboxError(AuditError):
    """The audit is made and filed, and its verdict could not be sent to `queue_url`."""

    queue_url: str
    problem: str
    message = (
        "the report is filed, but the verdict was not sent to {queue_url}: {problem}; allow the job to send "
        "there, and start it again"
    )
