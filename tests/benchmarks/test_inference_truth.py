"""The truth about inference: a row for each known quantile and each network."""

from benchmarks.inference_truth import NETWORKS, known_delay_rows


def test_each_quantile_is_beside_the_delays_themselves() -> None:
    rows = list(known_delay_rows(0.01))
    assert [row.what.split()[0] for row in rows] == ["p50", "p99"]
    assert all(row.ours != "-" and row.other != "-" for row in rows)


def test_each_network_takes_its_batch() -> None:
    for make in NETWORKS.values():
        network, batch = make()
        assert len(network(batch)) == len(batch)
