"""Builds the wheels eventplane, eventplane-client and eventplane-forwarder: build/packages/*.whl.

They are built by the tools that lab/requirements/build.txt pins. The same sources make the same bytes.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "build" / "packages"

PACKAGES = {
    "eventplane": ROOT,
    "eventplane-client": ROOT / "lab" / "packages" / "client",
    "eventplane-forwarder": ROOT / "lab" / "packages" / "forwarder",
}
"""Name of each package -> the folder of its pyproject.toml."""


def build(output: Path) -> dict[str, Path]:
    """Build every wheel into the folder `output`, replacing what is there. Return name -> file.

    Raises `CalledProcessError`; uv has printed why.
    """
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--no-create-gitignore"]
    command += ["--build-constraints", str(ROOT / "lab" / "requirements" / "build.txt"), "--require-hashes"]
    for folder in PACKAGES.values():
        subprocess.run([*command, "--out-dir", str(output), str(folder)], check=True)
    return {name: next(output.glob(f"{name.replace('-', '_')}-[0-9]*.whl")) for name in PACKAGES}


def main() -> int:
    """Build the wheels and print their files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FOLDER", help="default: %(default)s")
    try:
        wheels = build(parser.parse_args().output)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    for wheel in wheels.values():
        print(f"{wheel}: {wheel.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
