# The network between the hosts of a job: a machine may have several, and MPI would try them all.
# Main entry: choose_network().
from __future__ import annotations

import difflib
import fcntl
import ipaddress
import socket
import struct
from typing import Optional

from ._mpirun import LaunchError

SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B


def interfaces() -> dict[str, ipaddress.IPv4Interface]:
    """Those of this machine that have an IPv4 address."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                parts = [fcntl.ioctl(probe, what, request)[20:24] for what in (SIOCGIFADDR, SIOCGIFNETMASK)]
            except OSError:
                continue
            address, mask = map(socket.inet_ntoa, parts)
            found[name] = ipaddress.IPv4Interface(f"{address}/{mask}")
    return found


def is_here(host: str) -> bool:
    """Whether a host of the list is this machine."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.IPv4Address(socket.gethostbyname(host))
    except (OSError, ValueError):
        return False
    return address.is_loopback or any(address == interface.ip for interface in interfaces().values())


def choose_network(hosts: list[str], wanted: Optional[str]) -> Optional[str]:
    """The network that leads to the other hosts, as address/bits: interfaces may be called differently there. None when
    all ranks are here. Raises LaunchError for a host without an address or an interface that is not there."""
    here = interfaces()
    if wanted:
        if "/" in wanted:
            try:
                return str(ipaddress.IPv4Network(wanted, strict=False))
            except ValueError:
                raise LaunchError(f"--interface {wanted}: not a network. Hint: as in 10.0.0.0/24.") from None
        if wanted not in here:
            near = difflib.get_close_matches(wanted, list(here), n=1, cutoff=0.0)
            hint = f"Hint: did you mean {near[0]}? There are {', '.join(here)}." if near else "There is none."
            raise LaunchError(f"--interface {wanted}: no such interface with an address. {hint}")
        return str(here[wanted].network)
    networks = []
    for host in hosts:
        if is_here(host):
            continue
        try:
            target = socket.gethostbyname(host)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))  # sends nothing: the kernel picks the route
                source = ipaddress.IPv4Address(probe.getsockname()[0])
        except OSError as error:
            raise LaunchError(f"host {host}: {error.strerror or error}. Hint: is its name right?") from None
        networks += [str(i.network) for i in here.values() if i.ip == source and str(i.network) not in networks]
    return ",".join(networks) or None
