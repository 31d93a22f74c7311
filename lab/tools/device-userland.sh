#!/usr/bin/env bash
# Makes a root directory of Debian under build/device, installed by Debian's own scripts:
#   userland  Debian 12 for armv7l, and the emulator that runs it (qemu-arm-static): what every Debian has, Python, Mosquitto.
#             An emulated Mosquitto reads no include_dir: directories of a 64-bit machine are too large for it
#   machine   a whole device besides: kernel (in build/device/kernel), systemd, OpenSSL; tests/device boots it
#   bookworm  Debian 12 for this machine's processor
#   trixie    Debian 13: Python 3.13
#   forky     the Debian after it: Mosquitto 2.1
# build/device/{bookworm,trixie,forky}/{mosquitto,python3} start these programs on this machine. Each root is a copy of what it shares with others, build/device/base*, which is installed once.
# The packages come over this machine's own apt configuration, signatures checked; nothing is installed on this
# machine. DEVICE_SOURCES names another sources file, for a machine that is not Debian 12. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."

kind=${1:-userland}
# usr-is-merged: the root has the merged /usr from the start, so nothing needs to convert it.
base=('?essential' usr-is-merged python3 mosquitto)
arch=armhf suffix=
case $kind in
  userland) packages=(systemd-standalone-sysusers) ;;
  bookworm | trixie | forky)
    base+=(systemd-standalone-sysusers) # instead of systemd, which forky's Mosquitto would bring
    packages=(mosquitto-clients)
    arch=$(dpkg --print-architecture) suffix=-$kind
    ;;
  machine) packages=(busybox-static mosquitto-clients openssl procps systemd systemd-sysv udev) ;;
  *) echo "usage: $0 [userland|machine|bookworm|trixie|forky]" >&2; exit 2 ;;
esac
build=$PWD/build/device
base_root=$build/base$suffix
say() { printf 'device-userland: %s\n' "$*" >&2; }

for program in apt-get dpkg dpkg-deb tar unshare; do
  command -v "$program" >/dev/null || { say "$program is missing: this needs Debian, or a machine like it"; exit 1; }
done

mkdir -p "$build"
exec 9>"$build/.lock" # two rooms of tests may want a root at once
flock 9
if [ -n "$suffix" ]; then
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets 'Created-By: Packages' 'Component: main' --format '$(REPO_URI)' | grep -m1 '/debian/$') ||
    { say "no mirror of Debian is in this machine's sources of apt"; exit 1; }
  DEVICE_SOURCES=$build/$kind.list
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $kind main" >"$DEVICE_SOURCES"
fi

digest=$(cat "$0" lab/tools/armhf-root.sh ${DEVICE_SOURCES:+"$DEVICE_SOURCES"} | sha256sum)
is_made() { [ -f "$build/$1/.made-from" ] && [ "$(cat "$build/$1/.made-from")" = "$digest" ]; }

# fetch NAME STATUS PACKAGE...: downloads to $apt what the packages need and dpkg's file STATUS does not have.
fetch() {
  apt=$build/apt-$1
  options=(-o "Dir::State=$apt" -o "Dir::State::status=$2" -o "Dir::Cache=$apt/cache"
    -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o APT::Install-Recommends=false
    -o Acquire::Languages=none -o "APT::Sandbox::User=$(id -un)" --quiet=2)
  if [ -n "${DEVICE_SOURCES:-}" ]; then
    options+=(-o "Dir::Etc::SourceList=$(realpath "$DEVICE_SOURCES")" -o Dir::Etc::SourceParts=-)
  fi
  rm -rf "$apt" # two versions of a package must not mix
  mkdir -p "$apt"/{lists,cache/archives}/partial
  # A source that has no armhf, or is just being updated, is no reason to stop: the next step names what it lacks.
  apt-get "${options[@]}" update || say "not every source could be read; going on with the others"
  apt-get "${options[@]}" --yes --download-only install "${@:3}"
}

# install_fetched ROOT: installs the packages in $apt. This machine's dpkg unpacks them, which takes a quarter of the time
# of the emulated one; the scripts of the packages run in the root.
install_fetched() {
  printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d" # no service is started here
  chmod +x "$1/usr/sbin/policy-rc.d"
  {
    lab/tools/armhf-root.sh --outside "$1" dpkg --root="$1" --force-architecture --force-depends --force-unsafe-io \
      --unpack "$apt"/cache/archives/*.deb &&
      lab/tools/armhf-root.sh "$1" dpkg --configure --pending
  } >"$apt/log" 2>&1 || { tail -n 40 "$apt/log" >&2; say "the packages could not be installed, see $apt/log"; exit 1; }
  rm "$1/usr/sbin/policy-rc.d"
}

make_base() {
  local target=$base_root emulator
  rm -rf "$target"
  mkdir -p "$target"/usr/{bin,lib,lib64,sbin}
  # As in every Debian 12: the programs of / are those of /usr.
  for folder in bin lib lib64 sbin; do ln -s "usr/$folder" "$target/$folder"; done
  fetch base /dev/null "${base[@]}"

  # The emulator is this machine's own program, so it comes from this machine's own lists.
  if [ -z "$suffix" ]; then
    if ! emulator=$(command -v qemu-arm-static); then
      (cd "$apt/cache" && apt-get --quiet=2 download qemu-user-static)
      dpkg-deb --extract "$apt"/cache/qemu-user-static_*.deb "$apt/emulator"
      emulator=$apt/emulator/usr/bin/qemu-arm-static
    fi
    cp "$emulator" "$target/qemu-arm-static"
  fi

  # The scripts of the packages need what they are about to install, so all files come first.
  for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar --extract --directory "$target" --keep-directory-symlink
  done
  [ -n "$suffix" ] || [ -e "$target/usr/bin/python3.11" ] || {
    say "Python 3.11 is wanted, as in Debian 12: name sources of it with DEVICE_SOURCES"
    exit 1
  }
  for name in passwd group; do cp "$target/usr/share/base-passwd/$name.master" "$target/etc/$name"; done
  mkdir -p "$target"/dev "$target"/var/lib/dpkg/{info,updates,triggers}
  touch "$target"/var/lib/dpkg/{status,available}
  install_fetched "$target"
}

is_made "$kind" && exit
if ! is_made "${base_root##*/}"; then
  say "$base_root ..."
  make_base
  printf '%s\n' "$digest" >"$base_root/.made-from"
fi
target=$build/$kind
say "$target ..."
rm -rf "$target"
cp --archive --reflink=auto "$base_root" "$target"
rm "$target/.made-from"
fetch "$kind" "$target/var/lib/dpkg/status" "${packages[@]}"
if [ "$kind" = machine ]; then
  # The kernel alone: what Debian installs with it makes an initial ramdisk, and the tests make their own.
  kernel=$(apt-cache "${options[@]}" depends linux-image-armmp | sed -n 's/^ *Depends: \(linux-image-.*-armmp\)$/\1/p')
  (cd "$apt/cache" && apt-get "${options[@]}" download "$kernel")
  rm -rf "$build/kernel"
  dpkg-deb --extract "$apt/cache/$kernel"_*.deb "$build/kernel"
fi
install_fetched "$target"
if [ -n "$suffix" ]; then
  # A program of a later C library runs with that library's own loader. Python finds its virtual environment by its name.
  libraries=$(dirname "$(find "$target/usr/lib" -name libc.so.6)")
  loader=$(find "$libraries" -name 'ld-linux*.so.*' | head -n 1)
  for program in usr/sbin/mosquitto usr/bin/python3; do
    printf '#!/bin/sh\nexec %q --library-path %q --argv0 "$0" %q "$@"\n' "$loader" "$libraries" "$target/$program" \
      >"$target/${program##*/}"
    chmod +x "$target/${program##*/}"
  done
fi
printf '%s\n' "$digest" >"$target/.made-from"
