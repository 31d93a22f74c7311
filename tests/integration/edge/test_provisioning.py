"""Provisioning over a real broker with client certificates; a part of the test plays AWS IoT."""

import ssl
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from contract.loader import load_contract
from edge.settings import CloudSettings
from eventplane.envelope import write_event
from eventplane_client import connect
from eventplane_mqtt import TlsFiles
from lab.mosquitto import Broker
from lab.network import free_port
from lab.process import Child, Supervisor
from lab.things import Authority
from parts.provisioning import NoAnswerError, OfflineError
from parts.provisioning.conversation import MqttCloud
from parts.provisioning.exchange import Exchange
from tests.endpoint import EndpointServer
from tests.integration.edge.conftest import SECONDS, THING, RecordingCloud, wait_for
from tests.integration.edge.provisioning_service import CREATE, CREATE_WITH_KEY, REGISTER, TEMPLATE, FakeAws


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RecordingCloud]:
    """One for all tests here: each has a device of its own, and answers of its own."""
    folder = tmp_path_factory.mktemp("cloud")
    with Supervisor(folder / "run") as supervisor:
        broker = RecordingCloud(supervisor, folder / "cloud", authority)
        yield broker
        broker.close()


@pytest.fixture
def aws(cloud: RecordingCloud, authority: Authority) -> Iterator[FakeAws]:
    with FakeAws(cloud, authority) as it:
        for topic in (CREATE, CREATE_WITH_KEY, REGISTER):
            it.subscribe(topic)
        yield it


@pytest.fixture
def claim(authority: Authority) -> TlsFiles:
    files = authority.issue("claim")
    return TlsFiles(authority.ca, files.certificate, files.key)


@pytest.fixture
def line(cloud: RecordingCloud, claim: TlsFiles) -> MqttCloud:
    """What the program uses, to be tried step by step."""
    unused = Path("unused")
    settings = CloudSettings(
        host="127.0.0.1",
        port=cloud.port,
        ca=claim.ca,
        certificate=unused,
        key=unused,
        rule="ingest",
        connect_timeout_s=SECONDS,
    )
    return MqttCloud(settings, THING, claim, SECONDS)


class Device:
    """A device that has nothing but a claim; `provision` runs the program to its end."""

    def __init__(
        self, supervisor: Supervisor, folder: Path, port: int, claim: TlsFiles, settings: str = ""
    ) -> None:
        self.pair = folder / "identity" / "identity.pem"
        self.settings = folder / "device.toml"
        self._supervisor = supervisor
        self.settings.write_text(
            f'thing = "{THING}"\ncontract = "contract.json"\nspool = "spool.db"\n'
            f'[cloud]\nhost = "127.0.0.1"\nport = {port}\nrule = "ingest"\nca = "{claim.ca}"\n'
            f'certificate = "{self.pair}"\nkey = "{self.pair}"\nconnect_timeout_s = {SECONDS}\n'
            f'[provisioning]\ntemplate = "{TEMPLATE}"\nclaim_certificate = "{claim.certificate}"\n'
            f'claim_key = "{claim.key}"\nretry_min_s = 0.1\nretry_max_s = 0.1\n{settings}'
        )

    def start(self) -> Child:
        command = [sys.executable, "-m", "edge", "provision", "--settings", str(self.settings)]
        return self._supervisor.start("provisioning", command)

    def provision(self) -> str:
        """Its log, when it has ended well."""
        child = self.start()
        wait_for(lambda: not child.running)
        assert child.wait() == 0
        return child.log.read_text()


@pytest.fixture
def device(supervisor: Supervisor, tmp_path: Path, cloud: RecordingCloud, claim: TlsFiles) -> Device:
    return Device(supervisor, tmp_path, cloud.port, claim)


def test_a_claim_gets_a_pair(device: Device, aws: FakeAws, line: MqttCloud, proxy: EndpointServer) -> None:
    assert "a new certificate is in use" in device.provision()
    assert aws.registered == [{"certificateOwnershipToken": "token-1", "parameters": {"SerialNumber": THING}}]
    # It is good: the pair fits, and a connection stands with it.
    ssl.create_default_context().load_cert_chain(device.pair)
    line.try_pair(device.pair)
    assert "needs no renewal" in device.provision()
    assert aws.created == 1
    # As the claim, and with the new certificate.
    assert len(proxy.received) > 1
    assert {each.target for each in proxy.received} == {"127.0.0.1:443"}


def test_a_clouds_key_is_not_logged(device: Device, aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_LOG_LEVEL", "debug")
    monkeypatch.setenv("EVENTPLANE_PROVISIONING_KEYS", "cloud")
    aws.refuses = [CREATE_WITH_KEY, REGISTER]
    log = device.provision()
    assert log.count("403 AccessDenied: the hook said no") == 2
    assert "a new certificate is in use" in log
    assert aws.secrets
    assert aws.secrets[0] in device.pair.read_text()
    assert device.pair.stat().st_mode & 0o777 == 0o600
    assert not [each for each in aws.secrets if each in log]


def test_sigterm_ends_the_waiting(supervisor: Supervisor, tmp_path: Path, claim: TlsFiles) -> None:
    child = Device(supervisor, tmp_path, free_port(), claim).start()
    wait_for(lambda: "next attempt in" in child.log.read_text())
    child.terminate()
    assert child.wait() == 0


def test_a_missing_answer_times_out(aws: FakeAws, line: MqttCloud) -> None:
    aws.silent = True
    with pytest.raises(NoAnswerError) as caught:
        line._replace(timeout_s=0.1).run(Exchange(TEMPLATE, THING, "csr"), _unexpected)
    assert caught.value.step == "create"


def test_an_unknown_claim_is_named(line: MqttCloud, tmp_path: Path, authority: Authority) -> None:
    stranger = Authority(tmp_path / "elsewhere").issue("claim")
    claim = TlsFiles(authority.ca, stranger.certificate, stranger.key)
    with pytest.raises(OfflineError, match=f"claim-{THING}"):
        line._replace(claim=claim).run(Exchange(TEMPLATE, THING, "csr"), _unexpected)


def _unexpected(certificate: str, _key: str | None) -> None:
    pytest.fail(f"nothing was created: {certificate}")


def test_a_forwarder_waits_for_its_certificate_and_outlives_its_replacement(
    supervisor: Supervisor,
    mosquitto: Callable[[str], Broker],
    tmp_path: Path,
    cloud: RecordingCloud,
    claim: TlsFiles,
    aws: FakeAws,
) -> None:
    port = mosquitto("home").port
    local = f"[local]\nport = {port}\nreceipt_timeout_s = 1\nreconnect_max_s = 0.2\n"
    device = Device(supervisor, tmp_path, cloud.port, claim, local)
    fast = 'rule = "ingest"\nreconnect_min_s = 0.1\nreconnect_max_s = 0.5\n'
    device.settings.write_text(device.settings.read_text().replace('rule = "ingest"\n', fast))
    (tmp_path / "contract.json").write_bytes(load_contract().canonical)
    forwarder = supervisor.start(
        "forwarder", [sys.executable, "-m", "edge", "--settings", str(device.settings)]
    )
    # The authority dates it an hour back: ten minutes are less than a third of its life.
    aws.life = timedelta(minutes=10)
    logs: list[str] = []
    with connect(f"mqtt://127.0.0.1:{port}", "voice-service") as voice:
        for number in ("before", "with the first", "with the second"):
            alarm = {"id": number, "source": "/s", "type": "org.eventplane.alarm.keyword.v1"}
            voice.put(write_event(alarm), SECONDS)  # stored, with or without a cloud
            logs.append(device.provision())
            wait_for(lambda number=number: cloud.has({number}))
    # It asks with what it has: the claim would have been a second attempt.
    assert ["trying with the claim" in each for each in logs[1:]] == [False, False]
    assert aws.created == 3
    assert forwarder.running
