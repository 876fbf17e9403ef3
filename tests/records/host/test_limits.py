"""Limits on the processes of a user."""

import os
import resource

import pytest

from runmanager.records.host.process import process_limit


def test_the_limit_on_processes_is_named_only_where_it_is_nearly_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    most = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda which: (most, most))
    monkeypatch.setattr(os, "getuid", lambda: 61236)  # has no process
    assert process_limit() == ""
    most = 8
    assert process_limit() == ""
    most = 7
    assert process_limit() == "processes and threads are limited to 7 (ulimit -u)"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert process_limit() == "", "the kernel exempts root"
