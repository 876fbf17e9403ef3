"""Which addresses stand for all of this machine, or for it alone."""

import pytest

from runmanager.records.host.addresses import bracketed, is_address, is_every_address, is_loopback


@pytest.mark.parametrize(
    ("host", "address", "every", "loopback", "before_a_port"),
    [
        ("localhost", False, False, True, "localhost"),
        ("127.0.0.1", True, False, True, "127.0.0.1"),
        ("127.8.8.8", True, False, True, "127.8.8.8"),
        ("::1", True, False, True, "[::1]"),
        ("0.0.0.0", True, True, False, "0.0.0.0"),
        ("::", True, True, False, "[::]"),
        ("0:0::0", True, True, False, "[0:0::0]"),
        ("192.0.2.1", True, False, False, "192.0.2.1"),
        ("host.example", False, False, False, "host.example"),
        ("", False, False, False, ""),
    ],
)
def test_kinds(host: str, address: bool, every: bool, loopback: bool, before_a_port: str) -> None:
    assert (is_address(host), is_every_address(host), is_loopback(host)) == (address, every, loopback)
    assert bracketed(host) == before_a_port
