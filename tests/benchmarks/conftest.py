"""Few images in MNIST's format, for what the benchmarks do with many."""

import pytest

from benchmarks.mnist_files import MnistFiles, generate


@pytest.fixture(scope="session")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> MnistFiles:
    folder = tmp_path_factory.mktemp("data")
    generate(folder, num_training=600, num_test=200)
    return MnistFiles(folder, "few images")
