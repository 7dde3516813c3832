"""What the live box says about an attempt: kept apart from the callbacks and streams that tell of it."""
