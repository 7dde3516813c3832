"""The product's own protocol, `/v1`, with its stream, health and metrics."""
