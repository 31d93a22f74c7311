#!/usr/bin/env bash
# Makes a root directory of Debian 12 for armv7l under build/device:
#   userland  Python with all it needs and nothing else, and the emulator that runs it (qemu-arm-static)
#   machine   a whole device: kernel, systemd, Mosquitto, Python, OpenSSL; tests/device boots it
# The packages come over this machine's own apt configuration, signatures checked; nothing is installed on this
# machine. DEVICE_SOURCES names another sources file, for a machine that is not Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-userland}
case $kind in
  userland) packages=(python3) ;;
  machine) packages=(base-files base-passwd busybox-static linux-image-armmp mosquitto mosquitto-clients openssl
    procps python3 systemd systemd-sysv udev) ;;
  *) echo "usage: $0 [userland|machine]" >&2; exit 2 ;;
esac
target=build/device/$kind
say() { printf 'device-userland: %s\n' "$*" >&2; }

for program in apt-get dpkg-deb tar; do
  command -v "$program" >/dev/null || { say "$program is missing: this needs Debian, or a machine like it"; exit 1; }
done

digest=$(cat "$0" ${DEVICE_SOURCES:+"$DEVICE_SOURCES"} | sha256sum)
[ -f "$target/.made-from" ] && [ "$(cat "$target/.made-from")" = "$digest" ] && exit

say "$target ..."
apt=$PWD/build/device/apt-$kind
rm -rf "$target" "$apt" # two versions of a package must not mix
mkdir -p "$target"/usr/{bin,lib,sbin} "$apt"/{lists,cache/archives}/partial
# As in every Debian 12: the programs of / are those of /usr.
for folder in bin lib sbin; do ln -s "usr/$folder" "$target/$folder"; done
: >"$apt/status" # as if nothing were installed: all that is needed is fetched
options=(-o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
  -o APT::Architecture=armhf -o APT::Architectures::=armhf -o APT::Install-Recommends=false
  -o Acquire::Languages=none -o "APT::Sandbox::User=$(id -un)" --quiet=2)
if [ -n "${DEVICE_SOURCES:-}" ]; then
  options+=(-o "Dir::Etc::SourceList=$(realpath "$DEVICE_SOURCES")" -o Dir::Etc::SourceParts=-)
fi
# A source that has no armhf, or is just being updated, is no reason to stop: the next step names what it lacks.
apt-get "${options[@]}" update || say "not every source could be read; going on with the others"
apt-get "${options[@]}" --yes --download-only install "${packages[@]}"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --directory "$target" --keep-directory-symlink \
    --exclude './usr/share/doc' --exclude './usr/share/man' --exclude './usr/share/locale'
done
[ -e "$target/usr/bin/python3.11" ] || {
  say "Python 3.11 is wanted, as in Debian 12: name sources of it with DEVICE_SOURCES"
  exit 1
}

if [ "$kind" = userland ]; then
  # The emulator is this machine's own program, so it comes from this machine's own lists.
  if ! emulator=$(command -v qemu-arm-static); then
    (cd "$apt/cache" && rm -f qemu-user-static_*.deb && apt-get --quiet=2 download qemu-user-static)
    dpkg-deb --extract "$apt"/cache/qemu-user-static_*.deb "$apt/emulator"
    emulator=$apt/emulator/usr/bin/qemu-arm-static
  fi
  cp "$emulator" "$target/qemu-arm-static"
fi
# What Debian's own installation does: the bytecode of the standard library lies beside it.
.venv/bin/python -m compileall -q -s "$target" -p / "$target/usr/lib/python3.11"
mkdir -p "$target/proc" "$target/tmp"
printf '%s\n' "$digest" >"$target/.made-from"
