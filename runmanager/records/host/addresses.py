"""Addresses that a server listens on: their kinds, and how they are written."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address


def is_address(host: str) -> bool:
    """Whether this is an address of IPv4 or IPv6, not a name."""
    return _parsed(host) is not None


def is_every_address(host: str) -> bool:
    """Whether this stands for all addresses of this machine, as 0.0.0.0 and :: do."""
    return (address := _parsed(host)) is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """Whether what listens there is reachable from this machine only."""
    return host == "localhost" or ((address := _parsed(host)) is not None and address.is_loopback)


def bracketed(host: str) -> str:
    """Return the host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _parsed(host: str) -> "IPv4Address | IPv6Address | None":
    import ipaddress  # late: every command imports this module

    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
