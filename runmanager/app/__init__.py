"""The Hydra application: composing and checking cells, and wiring the other rooms together."""
