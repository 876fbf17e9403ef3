"""Looking into a model without changing it: copies, recorded operations, the cost of a step."""
