"""A NATS server with JetStream on this machine."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.network import LOOPBACK, free_port, is_listening
from lab.process import Child, Supervisor


@dataclass(frozen=True, slots=True)
class NatsServer:
    """A running server; `url` is where it listens, on the loopback interface."""

    port: int
    child: Child

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"


def start_nats(supervisor: Supervisor, name: str, directory: Path, *options: str) -> NatsServer:
    """Start a server that keeps its streams in `directory`, on a free port.

    Raises what `Supervisor.start` raises.
    """
    program = shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "nats-server"
    port = free_port()
    arguments = ["--addr", LOOPBACK, "--port", str(port), "--jetstream", "--store_dir", str(directory)]
    child = supervisor.start(name, [program, *arguments, *options], ready=lambda: is_listening(port))
    return NatsServer(port, child)
