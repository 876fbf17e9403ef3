"""Finding the values of metrics in what a script prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.app.programs.script.output.printed_metrics import Point, StreamScanner
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.errors import ConfigurationError


class Found:
    """A scanner of one stream with what it has found, and a clock that the test sets."""

    def __init__(self, *options: str) -> None:
        self.points: list[Point] = []
        self.odd: list[tuple[str, str]] = []
        self.now = 0.0
        self.scanner = StreamScanner(
            parse_scalars(options),
            when_found=self.points.append,
            when_odd=lambda name, text: self.odd.append((name, text)),
            clock=lambda: self.now,
        )

    def values(self, *chunks: bytes) -> list[float]:
        for chunk in chunks:
            self.scanner.feed(chunk)
        self.scanner.close()
        return [point.value for point in self.points]


LOSS = r"loss=loss[ =:]+([-+.\deE]+|nan|inf)"


@pytest.mark.parametrize(
    ("output", "values"),
    [
        (b"loss 0.5\nloss 0.5\nother\nloss 1e-3", [0.5, 0.5, 0.001]),
        (b"loss 1 loss 2\r\nloss 3\r\n", [1, 2, 3]),
        # tqdm: redraws of one line, then the next bar.
        (b"\r  0%|  | loss=2\r 50%|# | loss=2\r 99%|##| loss=1\r100%|##| loss=1\n\r  0%|  | loss=0.5", [2, 1, 0.5]),
        # rich: the cursor goes up and the line is erased.
        (b"loss 2\n\x1b[1A\x1b[2Kloss 2\n\x1b[1A\x1b[2Kloss 1\n", [2, 1]),
        # Colours and a hyperlink between the characters.
        (b"\x1b[1;31mlo\x1b[0mss\x1b[38;5;4m 0.25\x1b]8;;http://x\x07\x1b[m\n", [0.25]),
        (b"\xff\xfe loss 4 \xe2\x82", [4]),
    ],
)
def test_every_match_is_a_point_and_a_redraw_counts_once(output: bytes, values: list[float]) -> None:
    assert Found(LOSS).values(output) == values
    assert Found(LOSS).values(*(bytes([byte]) for byte in output)) == values


@given(st.lists(st.integers(1, 30)))
def test_the_borders_of_reads_do_not_matter(sizes: list[int]) -> None:
    output = "\rloss 1é\rloss 1\r\nloss 1\n\x1b[2Kloss 2\r\rloss 3".encode()
    chunks, rest = [], output
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert Found(LOSS).values(*chunks, rest) == Found(LOSS).values(output)


def test_two_groups_are_a_fraction_and_what_is_no_number_is_reported() -> None:
    found = Found(r"accuracy=Accuracy: (\d+)/(\d+)", r"rate=rate (\S+)")
    assert found.values(b"Accuracy: 3/4\nAccuracy: 1/0\nrate N/A\nrate 2\n") == [0.75, 2]
    assert [point.name for point in found.points] == ["accuracy", "rate"]
    assert found.odd == [("accuracy", "Accuracy: 1/0"), ("rate", "rate N/A")]


def test_not_a_number_is_a_value() -> None:
    values = Found(LOSS).values(b"loss nan\rloss nan\rloss inf\n")
    assert len(values) == 2 and values[0] != values[0] and values[1] == float("inf")


def test_a_point_has_the_time_when_its_line_was_complete() -> None:
    found = Found(LOSS)
    for now, chunk in ((1, b"loss"), (2, b" 0.5"), (3, b"\rloss 1\nloss"), (4, b" 2")):
        found.now = now
        found.scanner.feed(chunk)
    found.now = 5
    found.scanner.close()
    assert [(point.value, point.wall_time) for point in found.points] == [(0.5, 2), (1, 3), (2, 4)]


def test_a_line_without_an_end_takes_bounded_memory() -> None:
    found = Found(LOSS)
    for _ in range(40):
        found.scanner.feed(b"x" * 2**16)
    assert found.values(b" loss 3\n") == [3]
    assert len(found.scanner._pending) == 0


def test_bad_expressions_are_refused_together() -> None:
    options = ["loss", "=x", r"a=(", r"b=\d+", r"c=(a)(b)(c)", r"d=(\d+)", r"d=(\d+)"]
    with pytest.raises(ConfigurationError) as error:
        parse_scalars(options)
    assert len(error.value.faults) == 6
    assert all("--scalar" in fault for fault in error.value.faults)
