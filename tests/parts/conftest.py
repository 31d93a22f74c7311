"""What tests of parts share with those of the functions; the functions of a part are the most of it."""

from tests.unit.conftest import _clients_of_moto, _once_in_a_session, aws, fake_aws  # noqa: F401 - fixtures
from tests.unit.lambdas.conftest import _certificates_once, cloud, contract, own_metrics, own_services  # noqa: F401 - fixtures
from tests.unit.operations.conftest import deployed, folder, plane, run, run_json  # noqa: F401 - fixtures
