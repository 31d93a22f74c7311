"""URI and URI-reference by the grammar of RFC 3986 (appendix A), each judged in one pass.

Internationalised characters have to be percent-encoded, as the RFC wants them. An address in brackets is
checked for its characters only.
"""

from __future__ import annotations

import re

_PLAIN = r"A-Za-z0-9\-._~!$&'()*+,;=%"
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")

# Possessive, so that what fails does so in one pass.
_SCHEME = "[A-Za-z][A-Za-z0-9+\\-.]*+:"
_BRACKETS = rf"\[(?:[0-9A-Fa-f:.]++|[vV][0-9A-Fa-f]++\.[{_PLAIN}:]++)\]"
_AUTHORITY = rf"//(?:[{_PLAIN}:]*+@)?(?:{_BRACKETS}|[{_PLAIN}]*+)(?::[0-9]*+)?(?=[/?#]|\Z)"
# Without an authority a path may not look like one.
_REST = rf"(?:{_AUTHORITY}|(?!//))[{_PLAIN}:@/]*+(?:\?[{_PLAIN}:@/?]*+)?(?:\#[{_PLAIN}:@/?]*+)?"
# Without a scheme, a colon in the first segment would make one.
_REFERENCE = re.compile(rf"(?!\Z)(?:{_SCHEME}|(?![^/?#]*:)){_REST}")
_ABSOLUTE = re.compile(rf"{_SCHEME}(?!\Z){_REST}")


def is_uri_reference(value: str) -> bool:
    """Whether `value` is a URI-reference; not an empty one, which is nothing to identify a source by."""
    return _REFERENCE.fullmatch(value) is not None and _escapes(value)


def is_uri(value: str) -> bool:
    """Whether `value` is a URI, scheme first; not a scheme alone, which locates nothing."""
    return _ABSOLUTE.fullmatch(value) is not None and _escapes(value)


def _escapes(value: str) -> bool:
    return "%" not in value or _BAD_ESCAPE.search(value) is None
