"""The artifact's `__main__.py`: the forwarder, unless the first argument is one of the words below."""

from __future__ import annotations

import sys

from edge.command_line import end


def main() -> int:
    """Run what the command line asks for; its exit status."""
    if sys.argv[1:2] == ["manifest"]:
        sys.stdout.write(__loader__.get_data("manifest.json").decode())  # type: ignore[name-defined]
        return 0
    if sys.argv[1:2] == ["provision"]:
        del sys.argv[1]
        from edge.provisioning.__main__ import main as run
    elif sys.argv[1:2] == ["discovery"]:
        del sys.argv[1]
        from edge.discovery.__main__ import main as run
    else:
        from edge.__main__ import main as run
    return run()


end(main())
