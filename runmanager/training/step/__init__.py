"""One optimiser step: precision, micro-batches, CUDA graphs, compilation, optimisers and schedulers."""
