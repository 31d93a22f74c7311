"""What tests of parts share with those of the functions; the functions of a part are the most of it."""

from tests.unit.conftest import (  # noqa: F401 - fixtures
    _clients_of_moto,
    _once_in_a_session,
    aws,
    fake_aws,
)
from tests.unit.lambdas.conftest import (  # noqa: F401 - fixtures
    _certificates_once,
    cloud,
    contract,
    own_metrics,
    own_services,
)
from tests.unit.operations.conftest import (  # noqa: F401 - fixtures
    deployed,
    folder,
    plane,
    run,
    run_json,
)
