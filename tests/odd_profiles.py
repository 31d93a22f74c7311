"""Profiles of Mosquitto, odd ones above all, and where each leads a program on the same device.

PORT and OTHER stand for ports, FOLDER for a directory with the Unix sockets, the certificate and what is
included. Unit tests read them; integration tests give each to a real Mosquitto as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Odd:
    """A profile. It leads to `address` (`host:port`), or there is a `refusal`: part of what is said.

    `runs`: a real Mosquitto can run with it beside others and lets us in.
    `mosquitto_refuses`: so does Mosquitto, when that is asked to run with it.
    `only_2_0`: Mosquitto 2.1 takes it otherwise.
    """

    name: str
    text: str
    address: str | None = None
    refusal: str = ""
    has_login: bool = False
    runs: bool = True
    mosquitto_refuses: bool = True
    only_2_0: bool = False
    included: Mapping[str, str] = field(default_factory=dict)


def leads(name: str, text: str, address: str, **more: object) -> Odd:
    return Odd(name, text, address, **more)  # type: ignore[arg-type]


def fails(name: str, text: str, refusal: str, **more: object) -> Odd:
    return Odd(name, text, refusal=refusal, **more)  # type: ignore[arg-type]


_TLS = "certfile FOLDER/server.pem\nkeyfile FOLDER/server.key\n"
_DEFAULT = {"runs": False}
"""It listens on 1883, which may be taken, or on what this machine does not have."""

_GOOD = {"mosquitto_refuses": False}
_OLD = {"only_2_0": True}

ODD_PROFILES = (
    leads("nothing", "", "localhost:1883", **_DEFAULT),
    leads("comments only", "# listener 1884\n\n#\n", "localhost:1883", **_DEFAULT),
    leads("anonymous only", "allow_anonymous true\n", "localhost:1883", **_DEFAULT),
    leads("address only", "bind_address 127.0.0.1\n", "127.0.0.1:1883", **_DEFAULT),
    leads("port", "port PORT\n", "127.0.0.1:PORT"),
    leads("port and address", "bind_address ::1\nport PORT\n", "[::1]:PORT"),
    leads("port twice", "port OTHER\nport PORT\n", "127.0.0.1:PORT"),
    leads("listener", "listener PORT\n", "127.0.0.1:PORT"),
    leads("listener and its comment", "listener PORT # for all\n", "127.0.0.1:PORT"),
    leads("address and its comment", "listener PORT 127.0.0.1 # for us\n", "127.0.0.1:PORT"),
    leads("windows lines", "# ours\r\n\r\nlistener PORT 127.0.0.1\r\n", "127.0.0.1:PORT"),
    leads("no last line end", "listener PORT 127.0.0.1", "127.0.0.1:PORT"),
    leads("indented", "   listener   PORT   127.0.0.1  \n", "127.0.0.1:PORT"),
    leads("digits and more", "listener PORTabc 127.0.0.1\n", "127.0.0.1:PORT", **_OLD),
    leads("signed", "listener +PORT 127.0.0.1\n", "127.0.0.1:PORT"),
    leads("every ipv4 address", "listener PORT 0.0.0.0\n", "127.0.0.1:PORT"),
    leads("every ipv6 address", "listener PORT ::\n", "[::1]:PORT"),
    leads("every ipv6 address at length", "listener PORT 0:0:0:0:0:0:0:0\n", "[::1]:PORT"),
    leads("ipv6 family", "listener PORT\nsocket_domain ipv6\n", "[::1]:PORT"),
    leads("ipv4 family", "listener PORT\nsocket_domain ipv4 # old\n", "127.0.0.1:PORT"),
    leads("ipv6 loopback", "listener PORT ::1\n", "[::1]:PORT"),
    leads("another loopback address", "listener PORT 127.0.0.9\n", "127.0.0.9:PORT"),
    leads("by name", "listener PORT localhost\n", "localhost:PORT"),
    leads("loopback interface", "listener PORT\nbind_interface lo\n", "127.0.0.1:PORT"),
    leads("unix socket", "listener 0 FOLDER/mqtt.sock\n", "FOLDER/mqtt.sock"),
    leads("unix socket with a space", "listener 0  FOLDER/m q.sock # a\n", "FOLDER/m"),
    leads("loopback before unix socket", "listener 0 FOLDER/a\nlistener PORT ::1\n", "[::1]:PORT"),
    leads("unix socket before tls", f"listener OTHER\n{_TLS}listener 0 FOLDER/a\n", "FOLDER/a"),
    leads("tls", f"listener PORT\n{_TLS}", "127.0.0.1:PORT with TLS"),
    leads("tls over a unix socket", f"listener 0 FOLDER/a\n{_TLS}", "FOLDER/a with TLS"),
    leads(
        "certificate without key is no tls",
        "listener PORT\ncertfile FOLDER/server.pem\n",
        "127.0.0.1:PORT",
        **_OLD,
    ),
    leads("plain before tls", f"listener OTHER 127.0.0.1\n{_TLS}listener PORT 127.0.0.1\n", "127.0.0.1:PORT"),
    leads("certificates wanted without tls", "listener PORT\nrequire_certificate true\n", "127.0.0.1:PORT"),
    leads(
        "one wants certificates",
        f"listener OTHER\n{_TLS}cafile FOLDER/server.pem\nrequire_certificate true\nlistener PORT\n{_TLS}",
        "127.0.0.1:PORT with TLS",
    ),
    leads(
        "websockets beside",
        "listener OTHER 127.0.0.1\nprotocol websockets\nlistener PORT ::1\n",
        "[::1]:PORT",
    ),
    leads("limits make no listener", "max_connections -1\nprotocol mqtt\nlistener PORT ::1\n", "[::1]:PORT"),
    leads(
        "limits make the default", "max_connections 9\nlistener 0 FOLDER/a\n", "127.0.0.1:1883", **_DEFAULT
    ),
    leads("password for all", "password_file FOLDER/empty\nlistener PORT ::1\n", "[::1]:PORT"),
    leads(
        "password of the default",
        "per_listener_settings true\npassword_file FOLDER/empty\nlistener PORT ::1\n",
        "[::1]:PORT",
        **_DEFAULT,
    ),
    leads(
        "who lets strangers in comes first",
        "per_listener_settings 1\nlistener OTHER 127.0.0.1\nlistener PORT 127.0.0.1\nallow_anonymous 1\n",
        "127.0.0.1:PORT",
    ),
    leads(
        "who has a password takes the first",
        "per_listener_settings true\nlistener OTHER 127.0.0.1\nlistener PORT 127.0.0.1\nallow_anonymous 1\n",
        "127.0.0.1:OTHER",
        has_login=True,
        runs=False,
    ),
    leads(
        "bridge",
        "listener PORT 127.0.0.1\nconnection cloud\naddress 127.0.0.1:OTHER\ntopic # out 1\n"
        "bridge_protocol_version mqttv311\n",
        "127.0.0.1:PORT",
    ),
    leads(
        "included",
        "include_dir FOLDER/conf.d\n",
        "127.0.0.1:PORT",
        included={
            "b.conf": "listener PORT 127.0.0.1\n",
            "c.bak": "listener OTHER\n",
            ".conf": "port OTHER\n",
        },
    ),
    leads(
        "each included file begins at the default",
        "listener 0 FOLDER/a\ninclude_dir FOLDER/conf.d\nsocket_domain ipv6\n",
        "127.0.0.1:PORT",
        included={"B.conf": "port PORT\n", "a.conf": "bind_address 127.0.0.1\n"},
    ),
    leads(
        "included in the order of letters",
        "include_dir FOLDER/conf.d\nlistener 0 FOLDER/a\n",
        "127.0.0.1:PORT",
        included={"b.conf": "port PORT\n", "A.conf": "port OTHER\n", "c.conf": "bind_address 127.0.0.1\n"},
    ),
    leads(
        "included files include nothing",
        "include_dir FOLDER/conf.d\nlistener PORT ::1\n",
        "[::1]:PORT",
        included={"a.conf": "include_dir /absent\n"},
        **_OLD,
    ),
    leads("one port in two families", "listener PORT 0.0.0.0\nlistener PORT ::1\n", "127.0.0.1:PORT"),
    leads(
        "one port at two addresses", "listener PORT 127.0.0.2\nlistener PORT 127.0.0.1\n", "127.0.0.2:PORT"
    ),
    leads("one family each", "listener PORT\nsocket_domain ipv6\nlistener PORT 127.0.0.1\n", "[::1]:PORT"),
    leads(
        "a certificate for each",
        f"listener OTHER\n{_TLS}listener PORT\n{_TLS}pid_file FOLDER/pid\n",
        "127.0.0.1:OTHER with TLS",
        runs=False,
    ),
    leads("rules of all behind flags", "use_username_as_clientid 0\nlistener PORT ::1\n", "[::1]:PORT"),
    leads(
        "another address comes last",
        "listener OTHER 192.0.2.1\nlistener PORT ::1\n",
        "[::1]:PORT",
        **_DEFAULT,
    ),
    leads("later versions", "listener PORT 127.0.0.1\nnovelty 7\n", "127.0.0.1:PORT", **_DEFAULT),
    fails("websockets only", "listener PORT\nprotocol websockets\n", "uses websockets", **_GOOD),
    fails("shared key only", "listener PORT\npsk_hint home\n", "pre-shared key", **_GOOD),
    fails(
        "certificates only",
        f"listener PORT\n{_TLS}cafile FOLDER/server.pem\nrequire_certificate true\n",
        "requires a certificate of its clients",
        **_GOOD,
    ),
    fails(
        "another interface", "listener PORT\nbind_interface eth7\n", "bound to the interface eth7", **_GOOD
    ),
    fails("relative socket", "listener 0 mqtt.sock\n", "relative path", **_GOOD),
    fails("relative certificate", "listener PORT\ncertfile a.pem\nkeyfile a.key\n", "relative path", **_GOOD),
    fails(
        "password in the clear",
        "listener PORT 192.0.2.1\n",
        "over the network without TLS",
        has_login=True,
        **_GOOD,
    ),
    fails("no port", "listener\n", "profile:1: listener has no value"),
    fails("port too high", "# a\nlistener 70000\n", "profile:2: '70000' is no port"),
    fails("port beyond any number", "listener 99999999999999999999\n", "is no port"),
    fails("negative port", "listener -5\n", "is no port"),
    fails("word for a port", "port many\n", "is no port"),
    fails("hexadecimal port", "listener 0x75b\n", "without a path", **_OLD),
    fails("socket without path", "listener 0 # where\n", "without a path"),
    fails("flag", "per_listener_settings yes\n", "'yes' is no value of per_listener_settings"),
    fails("protocol", "listener PORT\nprotocol mqtts\n", "'mqtts' is no protocol"),
    fails("tab", "listener\tPORT\n", "is no setting"),
    fails("indented comment", "listener PORT\n  # ours\n", "profile:2: '#' is no setting"),
    fails("mark of Windows", "\ufefflistener PORT\n", "is no setting"),
    fails("URL", "listener PORT mqtt://127.0.0.1\n", "'mqtt://127.0.0.1' is no host"),
    fails("brackets", "listener PORT [::1]\n", "'[::1]' is no host"),
    fails("port behind an address", "port PORT\nbind_address 127.0.0.1:1883\n", "profile:2: "),
    fails("comment behind an address", "bind_address 127.0.0.1 # ours\n", "is no host"),
    *(
        fails(f"address twice: {one}, {two}".replace("\n", " "), f"{one}\n{two}\n", "profile:1)")
        for one, two in (
            ("listener PORT", "listener PORT 127.0.0.1"),
            ("listener PORT 127.0.0.1", "listener PORT 0.0.0.0"),
            ("listener PORT 127.0.0.1", "listener PORT 127.0.0.1"),
            ("listener PORT 0:0::1", "listener PORT ::1"),
            ("listener PORT ::", "listener PORT 0::1"),
            ("listener PORT 127.0.0.1", "listener PORT\nbind_interface lo"),
            ("listener PORT", "listener PORT 127.0.0.1\nprotocol websockets"),
            ("listener PORT ::1", "port PORT"),
        )
    ),
    fails(
        "address of the profile in an included file",
        "include_dir FOLDER/conf.d\nlistener PORT 127.0.0.1\n",
        "profile:2: listener 1884 on 127.0.0.1",
        included={"home.conf": "# ours\r\n\r\nlistener PORT\r\n"},
    ),
    fails("pid file twice", "pid_file FOLDER/a\npid_file FOLDER/a\n", "profile:1"),
    fails("database twice", "persistence_location FOLDER/\npersistence_location FOLDER/\n", "profile:1"),
    fails("key twice", f"listener PORT\n{_TLS}keyfile FOLDER/server.key\n", "keyfile is set again", **_OLD),
    *(
        fails(f"{each} before per_listener_settings", f"{each}\nper_listener_settings 1\n", "is behind ")
        for each in ("allow_anonymous 1", "password_file FOLDER/empty", "allow_zero_length_clientid 1")
    ),
    fails("family", "listener PORT\nsocket_domain ipv5\n", "'ipv5' is no socket_domain"),
    fails("empty setting", "listener PORT\ncertfile\n", "profile:2: certfile has no value"),
    fails("nothing to include", "include_dir /absent\n", "/absent"),
    fails("relative folder", "include_dir conf.d\n", "include_dir is relative", **_GOOD),
    fails(
        "broken file included",
        "include_dir FOLDER/conf.d\nlistener PORT\n",
        "a.conf:1",
        included={"a.conf": "listener x\n"},
    ),
)
