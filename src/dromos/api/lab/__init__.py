"""The laboratory's protocol, `/api`: a thin second door to the same runs."""
