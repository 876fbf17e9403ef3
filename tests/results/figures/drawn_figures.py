"""Figures of sweeps in memory, and their content as SVG."""

import re
import xml.etree.ElementTree as ET

from runmanager.results.compare.comparison import compare
from runmanager.results.figures.catalog import sweep_figures
from runmanager.results.figures.figure import render
from runmanager.results.tables.results_table import result_rows

SVG = "{http://www.w3.org/2000/svg}"
PHASES = ("data_seconds", "transfer_seconds", "compute_seconds", "eval_seconds", "tracking_seconds")


def figures_in(sweep):
    """The figures of a sweep by name."""
    tables = {"results": result_rows(sweep, None), "comparison": compare(sweep, None)}
    return {figure.name: figure for figure in sweep_figures(sweep, **tables)}


def texts_of(drawn):
    """The lines of text in a figure."""
    return texts_in(file_of(drawn))


def file_of(drawn):
    return ET.fromstring(render(drawn, "svg"))


def texts_in(file):
    return [element.text for element in file.iter(f"{SVG}text")]


def numbers_in(file):
    """All coordinates in the paths of an SVG file."""
    paths = [element.get("d", "") for element in file.iter(f"{SVG}path")]
    return [float(number) for path in paths for number in re.findall(r"-?\d[\d.e-]*|nan|inf", path)]


def finished(contents, timed, configs, **columns):
    """A sweep of finished runs from (settings, seconds of each of six measured epochs)."""
    return contents(*((config, timed([9.0] + [seconds] * 6, **columns), {}) for config, seconds in configs))


def as_fields(epoch):
    return {name: getattr(epoch, name) for name in epoch.__struct_fields__}
