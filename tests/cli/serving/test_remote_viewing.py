"""What to run on one's own machine to reach a server over ssh."""

import pytest

from runmanager.cli.serving.local_server import forwarding_line


@pytest.mark.parametrize(
    ("connection", "host", "expected"),
    [
        ("9.9.9.9 50000 10.0.0.5 22", "localhost", "ssh -N -L 6006:localhost:6006 me@10.0.0.5"),
        ("9.9.9.9 50000 10.0.0.5 2222", "0.0.0.0", "ssh -p 2222 -N -L 6006:localhost:6006 me@10.0.0.5"),
        ("::1 50000 fe80::5 22", "::1", "ssh -N -L '6006:[::1]:6006' me@fe80::5"),
    ],
)
def test_the_port_is_forwarded_over_ssh(
    monkeypatch: pytest.MonkeyPatch, connection: str, host: str, expected: str
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    monkeypatch.setenv("SSH_CONNECTION", connection)
    assert forwarding_line(6006, host) == f"On your own machine: {expected} and then http://localhost:6006/"
    monkeypatch.delenv("SSH_CONNECTION")
    assert forwarding_line(6006, host) is None
