"""Fixtures of the benchmark tests: a few images in MNIST's format."""

import pytest

from benchmarks.mnist_files import MnistFiles, generate


@pytest.fixture(scope="session")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> MnistFiles:
    folder = tmp_path_factory.mktemp("data")
    generate(folder, num_training=600, num_test=200)
    return MnistFiles(folder, "few images")
