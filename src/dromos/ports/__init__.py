"""What the inside needs from outside, as small protocols. Adapters implement them; bootstrap plugs them in."""
