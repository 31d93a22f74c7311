SUMMARY = "The Event Plane's forwarder: stores a device's events and carries them home and to the cloud"
LICENSE = "Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE;md5=3b83ef96387f14655fc854ddc3c6bd57"

# It is built from the checkout that holds this layer, by the Python of this build: so the bytecode fits the image.
inherit externalsrc python3native systemd useradd
EXTERNALSRC = "${THISDIR}/../../../../.."
EXTERNALSRC_BUILD = "${WORKDIR}/build"

PACKAGE_ARCH = "all"

# Parts to leave out, for example "--without discovery --without provisioning"; docs/reference/device.md lists them.
EVENTPLANE_IMAGE_OPTIONS ?= ""

do_compile() {
    ${PYTHON} ${S}/lab/tools/device_image.py --output ${B}/eventplane-forwarder.pyz --revision ${PV} ${EVENTPLANE_IMAGE_OPTIONS}
}

do_install() {
    install -D -m 0755 ${B}/eventplane-forwarder.pyz ${D}${nonarch_libdir}/eventplane/eventplane-forwarder.pyz
    for unit in ${SYSTEMD_SERVICE:${PN}} ${EVENTPLANE_OPTIONAL_UNITS}; do
        install -D -m 0644 $(find ${S}/edge/packaging ${S}/parts -name $unit) ${D}${systemd_system_unitdir}/$unit
    done
    install -D -m 0644 ${S}/edge/packaging/mosquitto.conf ${D}${datadir}/eventplane/mosquitto.conf
    install -D -m 0644 ${S}/edge/packaging/mosquitto-access.conf ${D}${datadir}/eventplane/mosquitto-access.conf
    install -D -m 0644 ${S}/edge/packaging/forwarder.toml ${D}${datadir}/eventplane/forwarder.toml
    install -D -m 0644 ${S}/edge/packaging/forwarder.schema.json ${D}${datadir}/eventplane/forwarder.schema.json
    install -d ${D}${bindir}
    ln -s ../lib/eventplane/eventplane-forwarder.pyz ${D}${bindir}/eventplane-forwarder
}

# The profile of the broker is for a mosquitto_%.bbappend of the product: it replaces that package's own.
FILES:${PN} += "${nonarch_libdir}/eventplane ${datadir}/eventplane ${systemd_system_unitdir}"

# Starting needs settings, which are the product's: /etc/eventplane/forwarder.toml (complete the one in
# ${datadir}/eventplane) and contract.json.
SYSTEMD_SERVICE:${PN} = "eventplane-forwarder.service"
# Not enabled: the timer is for devices with the fleet's claim in /etc/eventplane, the announcement for those that announce
# their broker, the telemetry for those that have a collector. A product adds what it needs: SYSTEMD_SERVICE:${PN}:append = " eventplane-provisioning.timer".
EVENTPLANE_OPTIONAL_UNITS = "eventplane-provisioning.timer eventplane-provisioning.service eventplane-announcement.service eventplane-telemetry.service"

USERADD_PACKAGES = "${PN}"
USERADD_PARAM:${PN} = "--system --home-dir /var/lib/eventplane --no-create-home --shell /sbin/nologin --user-group eventplane"

# tests/unit/packaging/test_image.py compares these with what the program imports.
RDEPENDS:${PN} = " \
    mosquitto \
    python3-core \
    python3-crypt \
    python3-datetime \
    python3-difflib \
    python3-fcntl \
    python3-io \
    python3-json \
    python3-logging \
    python3-netclient \
    python3-sqlite3 \
    python3-threading \
    python3-tomllib \
"
# Makes the device's private key on the device (`provisioning.keys`).
RRECOMMENDS:${PN} = "openssl-bin"
# Announces the broker to the home (meta-python): only for who enables eventplane-announcement.service.
RSUGGESTS:${PN} = "python3-zeroconf"
