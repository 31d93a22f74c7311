"""The contract's files: the YAML that people edit, the payload schemas, and how they are read.

The core knows neither files nor YAML; this package is its adapter to both, used where a contract is compiled
(deploy, device image, tests). What runs in production loads the compiled form.
"""

from contract.loader import CONTRACT_FILE, check_payload, load_contract

__all__ = ["CONTRACT_FILE", "check_payload", "load_contract"]
