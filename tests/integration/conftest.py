"""The real parts that integration tests share: one cloud and one deployed plane for the session, brokers for
a test."""

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lab.cloud import CloudEndpoint, start_synthesis
from lab.emulator import start_emulator
from lab.mosquitto import Broker, start_mosquitto
from lab.plane import Plane, deploy_plane
from lab.process import Supervisor
from lab.things import Authority
from tests.browser import Page
from tests.endpoint import EndpointServer
from tests.integration import downlink
from tests.integration.cloud import HOOKED, Archive, Inboxes, grown_contract, output_of
from tests.listeners import only_the_loopback_interface  # noqa: F401 - a fixture for every test here


@pytest.fixture(scope="session")
def cloud_supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """Owns what lasts for the whole session."""
    with Supervisor(tmp_path_factory.mktemp("cloud")) as supervisor:
        yield supervisor


@pytest.fixture(scope="session")
def emulator(cloud_supervisor: Supervisor) -> CloudEndpoint:
    """A running cloud with IAM enforced. It is shared: use names of your own, and leave others' alone."""
    return start_emulator(cloud_supervisor)


@pytest.fixture(scope="session")
def authority_of_rescuers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signed the certificate of `rescuers`."""
    return Authority(tmp_path_factory.mktemp("rescuers"))


@pytest.fixture(scope="session")
def rescuers(authority_of_rescuers: Authority) -> Iterator[EndpointServer]:
    """The HTTPS endpoint of the rescue service, to which the plane's webhook posts."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = authority_of_rescuers.issue(HOOKED)
    tls.load_cert_chain(identity.certificate, identity.key)
    with EndpointServer(tls=tls) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def contract_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled contract of the deployed plane."""
    file = tmp_path_factory.mktemp("contract") / "contract.json"
    file.write_bytes(grown_contract().canonical)
    return file


@pytest.fixture(scope="session")
def plane_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the deployment of the plane leaves: its assembly is `cdk.out`."""
    return tmp_path_factory.mktemp("plane")


@pytest.fixture(scope="session")
def plane(
    emulator: CloudEndpoint, rescuers: EndpointServer, contract_file: Path, plane_folder: Path
) -> Plane:
    """The plane's own stacks, deployed once, with the grown contract. Others' events lie in its inboxes."""
    context = {"contract": str(contract_file), "webhooks": json.dumps({HOOKED: rescuers.url()})}
    with Supervisor(plane_folder) as supervisor:
        synthesis = start_synthesis(supervisor, emulator.account, emulator.region, context=context)
        return deploy_plane(supervisor, emulator, synthesis, grown_contract())


@pytest.fixture(scope="session")
def outputs(plane: Plane) -> Mapping[str, str]:
    """What the plane's stacks hand out, by name."""
    return plane.outputs


@pytest.fixture(scope="session")
def inboxes(plane: Plane) -> Inboxes:
    """Everything that came into the inboxes of cloud services, for whoever looks for an event of its own."""
    return Inboxes(plane)


@pytest.fixture(scope="session")
def archive(plane: Plane) -> Archive:
    """The archive of the plane, with the rows of all tests."""
    return Archive(plane)


@pytest.fixture(scope="module")
def cloud_home(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[downlink.Home]:
    """A registered home that is connected to the plane. A module has one: use keys of your own."""
    folder = tmp_path_factory.mktemp("home")
    name = folder.name.replace("home", "home-of-module-")
    output_of(plane.cloud, "fleet", "register", name)
    with Supervisor(folder / "run") as it, downlink.running_home(plane, it, folder / name, name) as home:
        yield home


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One browser for all pages: give it a width, and leave it on an empty page."""
    with Page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Owns what lasts for one test."""
    with Supervisor(tmp_path / "run") as it:
        yield it


@pytest.fixture
def mosquitto(supervisor: Supervisor, tmp_path: Path) -> Callable[[str], Broker]:
    """Starts a home's broker by name; it ends with the test."""
    return lambda name: start_mosquitto(supervisor, name, tmp_path / name)
