"""The collector rests only meanwhile, and not for those who have it off."""

import gc

import pytest

from runmanager.records.storage.gc_paused import collector_at_rest


def test_it_is_as_before_afterwards() -> None:
    assert gc.isenabled()
    with collector_at_rest():
        assert not gc.isenabled()
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), collector_at_rest():
        raise KeyError
    assert gc.isenabled()


def test_somebodys_own_choice_stays() -> None:
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
