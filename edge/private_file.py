"""Whether a file with a secret is kept from others."""

from __future__ import annotations

import os
import stat

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_private(found: os.stat_result) -> bool:
    """Whether only its owner has access to a file; root may let a group read what is root's.

    That is how systemd hands out credentials (LoadCredential=): its grant to one user shows as the group's.
    """
    granted = found.st_mode & _OTHERS
    return not granted or (found.st_uid == 0 and granted == stat.S_IRGRP)
