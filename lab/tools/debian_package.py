"""Builds the Debian package of the forwarder: build/device/eventplane-forwarder_VERSION_all.deb.

The same sources and the same Python make the same bytes: every file has the date of the package's changelog.
It needs none of Debian's tools. The maintainer's files are in edge/packaging/debian.
"""

import gzip
import hashlib
import io
import lzma
import re
import sys
import tarfile
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from lab.tools.device_image import (  # noqa: E402
    OUTPUT,
    PACKAGING,
    VERSION,
    build,
    read_arguments,
    units,
    with_fixed_bytecode,
)

DEBIAN = PACKAGING / "debian"
NAME = "eventplane-forwarder"
PROGRAM = "usr/lib/eventplane/eventplane-forwarder.pyz"
DOC = f"usr/share/doc/{NAME}"

SET_BY_DEBIAN = ("persistence_location",)
"""Settings that Debian's mosquitto.conf has; Mosquitto refuses to start when a text is set twice."""


class File(NamedTuple):
    """A file of the package; a symbolic link where it has a `target`."""

    content: bytes = b""
    mode: int = 0o644
    target: str = ""


def files(program: bytes, without: Collection[str] = ()) -> dict[str, File]:
    """Return what the package installs: path without the leading slash -> file."""
    installed = {
        PROGRAM: File(program, 0o755),
        f"usr/bin/{NAME}": File(target=f"../{PROGRAM.removeprefix('usr/')}"),
        "usr/lib/sysusers.d/eventplane.conf": File(_read("eventplane.sysusers")),
        "usr/share/eventplane/forwarder.schema.json": File(_read("forwarder.schema.json")),
        "usr/share/eventplane/mosquitto-access.conf": File(_read("mosquitto-access.conf")),
        "etc/eventplane/forwarder.toml": File(_read("forwarder.toml")),
        "etc/mosquitto/eventplane.conf": File(debian_profile().encode()),
        "usr/lib/systemd/system/mosquitto.service.d/eventplane.conf": File(_read("mosquitto-service.conf")),
        f"{DOC}/copyright": File(_read("debian/copyright")),
        f"{DOC}/changelog.gz": File(gzip.compress(_read("debian/changelog"), mtime=0)),
    }
    for unit in units(without):
        installed[f"usr/lib/systemd/system/{unit.name}"] = File(unit.read_bytes())
    return dict(sorted(installed.items()))


def debian_profile() -> str:
    """Return Mosquitto's profile for conf.d: without what Debian's own file sets."""
    lines = (PACKAGING / "mosquitto.conf").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(SET_BY_DEBIAN))


def write_package(
    output: Path, program: bytes, version: str = VERSION, without: Collection[str] = ()
) -> None:
    """Write the package of `program`, which was built without the parts `without`, to `output`."""
    installed = files(program, without)
    size_kib = sum(-(-len(each.content) // 1024) for each in installed.values())
    control = re.sub(
        r"^Architecture:",
        f"Version: {version}\nInstalled-Size: {size_kib}\nArchitecture:",
        _read("debian/control").decode(),
        flags=re.MULTILINE,
    )
    sums = [
        (hashlib.md5(each.content, usedforsecurity=False).hexdigest(), path)
        for path, each in installed.items()
        if not each.target
    ]
    scripts = {
        name: File(_read(f"debian/{name}"), 0o755) for name in ("preinst", "postinst", "postrm", "prerm")
    }
    about = {
        "control": File(control.encode()),
        "conffiles": File("".join(f"/{path}\n" for path in installed if path.startswith("etc/")).encode()),
        "md5sums": File("".join(f"{digest}  {path}\n" for digest, path in sums).encode()),
        **scripts,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    members = {"debian-binary": b"2.0\n", "control.tar.xz": _tar(about), "data.tar.xz": _tar(installed)}
    output.write_bytes(b"!<arch>\n" + b"".join(_member(name, content) for name, content in members.items()))


def _read(name: str) -> bytes:
    return (PACKAGING / name).read_bytes()


def _date() -> int:
    """Return the date of the changelog's newest entry, seconds since 1970."""
    found = re.search(r"^ -- .*>  (.*)$", _read("debian/changelog").decode(), re.MULTILINE)
    if found is None:
        raise ValueError(
            "edge/packaging/debian/changelog: its entry ends without a line ` -- NAME <ADDRESS>  DATE`"
        )
    return int(parsedate_to_datetime(found[1]).timestamp())


def _tar(contents: dict[str, File]) -> bytes:
    """Pack `contents` and the folders that they are in, all of root, as dpkg does."""
    packed = io.BytesIO()
    folders = {str(each) for path in contents for each in PurePosixPath(path).parents}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(folders | contents.keys()):
            info = tarfile.TarInfo("./" if path == "." else f"./{path}")
            info.mtime, info.uname, info.gname = _date(), "root", "root"
            each = contents.get(path)
            if each is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            elif each.target:
                info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, each.target
                archive.addfile(info)
            else:
                info.size, info.mode = len(each.content), each.mode
                archive.addfile(info, io.BytesIO(each.content))
    return lzma.compress(packed.getvalue(), preset=6)


def _member(name: str, content: bytes) -> bytes:
    """Return a member of an `ar` archive (deb(5))."""
    head = f"{name:<16}{_date():<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
    return head.encode() + content + b"\n" * (len(content) % 2)


def main() -> int:
    """Build program and package, and print what was built."""
    with_fixed_bytecode()
    arguments = read_arguments(__doc__.partition("\n")[0], OUTPUT.with_name(f"{NAME}_{VERSION}_all.deb"))
    build(OUTPUT, arguments.revision, arguments.without)
    write_package(arguments.output, OUTPUT.read_bytes(), without=arguments.without)
    content = arguments.output.read_bytes()
    print(f"{arguments.output}: {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
