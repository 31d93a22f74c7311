"""The client library in a real home: Mosquitto, forwarder, and a broker that plays IoT Core."""

from tests.integration.edge.conftest import authority, cloud, home, home_contract, make_home

__all__ = ["authority", "cloud", "home", "home_contract", "make_home"]
