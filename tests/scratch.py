"""Where tests write many files that are gone again at once."""

import os
import tempfile
from typing import Final

SCRATCH: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
"""In memory where that is possible: there a sync costs nothing."""
