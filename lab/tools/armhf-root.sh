#!/usr/bin/env bash
# Runs a command in the root directory of a Debian as its root. Every program of one for armv7l is emulated; a root of this
# machine's processor has no emulator, and needs none:
#   lab/tools/armhf-root.sh [--outside] ROOT COMMAND...
# With --outside the command is one of this machine; what it starts in ROOT is emulated.
# Needs root. The kernel starts the emulator (ROOT/qemu-arm-static) by an entry of binfmt_misc that only a user
# namespace of this command's own sees (Linux 6.7), so nothing changes on this machine. An older kernel needs the entry
# of the package qemu-user-static.
set -euo pipefail

enter=chroot
if [ "$1" = --outside ]; then
  enter=
  shift
fi
root=$(realpath "$1")
shift

# In the namespaces: register the emulator if need be, provide what programs expect, run the command.
# shellcheck disable=SC2016
inner='
  root=$1; enter=$2; registered=$3; shift 3
  [ -n "$registered" ] || read -r _ # until root has its users
  if [ -z "$registered" ] && [ -e "$root/qemu-arm-static" ]; then
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || exit 125
    elf="\\x7fELF\\x01\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\x28\\x00"
    mask="\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff"
    printf "%s" ":arm:M::$elf:$mask:$root/qemu-arm-static:F" >/proc/sys/fs/binfmt_misc/register
  fi
  for device in null zero random urandom; do
    [ -e "$root/dev/$device" ] || : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  mount --rbind /proc "$root/proc"
  export LC_ALL=C DEBIAN_FRONTEND=noninteractive HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
  [ -z "$enter" ] || set -- chroot "$root" "$@"
  exec "$@"
'
if [ -e /proc/sys/fs/binfmt_misc/qemu-arm ]; then
  exec unshare --mount --pid --fork --kill-child sh -eu -c "$inner" sh "$root" "$enter" yes "$@" </dev/null
fi

if ! unshare --user true 2>/dev/null; then
  echo 'armhf-root: this place lets root make no user namespace, as in a chroot and in most containers: use the machine itself' >&2
  exit 1
fi
folder=$(mktemp --directory)
trap 'kill "${child:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
mkfifo "$folder/go"
unshare --user --mount --pid --fork --kill-child sh -eu -c "$inner" sh "$root" "$enter" "" "$@" <"$folder/go" &
child=$!
exec {go}>"$folder/go"
until [ "$(readlink "/proc/$child/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do :; done
for map in uid_map gid_map; do echo '0 0 65536' >"/proc/$child/$map"; done
echo >&"$go"
exec {go}>&-
status=0
wait "$child" || status=$?
if [ "$status" = 125 ]; then
  echo 'armhf-root: this kernel has no binfmt_misc for a user namespace: install qemu-user-static, which registers it' >&2
fi
exit "$status"
