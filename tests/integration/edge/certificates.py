"""The certificate authority of `local`, under the name that the tests know."""

from local.certificates import Authority, Identity

__all__ = ["Authority", "Identity"]
