"""Every measured field of the records has one declaration, and every declaration its field."""

from runmanager.records.run.measurement import COMPARED, MEASUREMENTS, TAGS, Taken
from runmanager.records.run.run_record import EpochRecord, RunRecord

COUNTS_AND_MARKS = {"epoch", "samples", "warmup", "metrics", "units", "readings"}
"""Fields of an epoch that are no measurements of it."""
OF_EPOCHS = (Taken.LAST_EPOCH, Taken.MEDIAN)


def test_each_field_of_an_epoch_is_declared_once() -> None:
    names = [each.name for each in MEASUREMENTS]
    assert len(names) == len(set(names))
    assert {*EpochRecord.__struct_fields__} - COUNTS_AND_MARKS <= {*names}


def test_each_declaration_names_what_its_record_has() -> None:
    for each in MEASUREMENTS:
        if each.taken in OF_EPOCHS:
            assert each.is_of_epochs, each
        if each.taken is Taken.RECORD:
            assert each.name in RunRecord.__struct_fields__, each


def test_only_what_epochs_have_has_a_scalar_and_only_what_has_a_direction_is_compared() -> None:
    assert {each.name for each in MEASUREMENTS if each.is_of_epochs} >= TAGS.keys()
    assert {each.better for each in COMPARED} == {"min", "max"}
    assert {each.name for each in MEASUREMENTS} - {each.name for each in COMPARED} >= {"num_parameters", "device_name"}
