"""What the library for DNS-SD refuses, without a network."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from zeroconf import NonUniqueNameException, NotRunningException, ServiceInfo

from eventplane_mqtt.discovery import MulticastDnsError, dns_sd
from eventplane_mqtt.discovery.announcement import PLAIN, AnnouncementUpdater, Interface, Service
from eventplane_mqtt.discovery.dns_sd import Announced, DnsSdAnnouncer

HOME = Interface("home0", "192.0.2.7", ("192.0.2.7",))


class Line:
    """Where a name is taken, and two brokers are announced, one of them by somebody who cannot spell."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_taken = True

    def register_service(self, info: ServiceInfo, *, allow_name_change: bool) -> None:
        assert allow_name_change
        if self.is_taken:
            raise NonUniqueNameException

    def unregister_service(self, info: ServiceInfo) -> None:
        raise NotRunningException

    def get_service_info(self, kind: str, name: str, timeout_ms: int) -> ServiceInfo:
        return ServiceInfo(kind, name, 1884, parsed_addresses=["192.0.2.8"])

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    it = Line()
    monkeypatch.setattr(dns_sd, "_open", lambda _: it)
    return it


def test_a_name_that_is_taken_is_an_error_with_the_interface(line: Line) -> None:
    announcer = DnsSdAnnouncer(HOME, "home-1")
    with pytest.raises(MulticastDnsError, match="home0: multicast DNS: NonUniqueName"):
        announcer.announce([Service(PLAIN, 1884, HOME.addresses)])


def test_without_a_goodbye_the_sockets_are_freed(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    line.is_taken = False
    announcer = DnsSdAnnouncer(HOME, "home-1")
    announcer.announce([Service(PLAIN, 1884, HOME.addresses)])
    announcer.close()
    assert line.is_closed
    assert "home0: not withdrawn" in caplog.text


def test_announcing_goes_on_and_says_why_nothing_is_announced(
    line: Line, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile = tmp_path / "mosquitto.conf"
    profile.write_text("listener 1884\n")
    updater = AnnouncementUpdater(
        profile, ["home0"], lambda _: HOME, lambda each: DnsSdAnnouncer(each, "home-1")
    )
    updater.update()
    assert "nothing is announced on home0" in caplog.text
    assert line.is_closed
    line.is_taken = False
    with caplog.at_level(logging.INFO):
        updater.update()
    assert "announced _mqtt._tcp" in caplog.text


def test_a_name_that_is_none_does_not_hide_the_others(
    line: Line, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def browse(_line: Any, kinds: list[str], listener: Any) -> None:
        for name in ("a\x00b", "good"):
            listener.add_service(_line, PLAIN, f"{name}.{PLAIN}")

    monkeypatch.setattr(dns_sd, "ServiceBrowser", browse)
    with caplog.at_level(logging.WARNING):
        assert dns_sd.find([HOME], 0.0) == [Announced("good", "", ("192.0.2.8",), 1884, False)]
    assert "skipped the announcement" in caplog.text
