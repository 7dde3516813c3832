"""What happens outside when servers die: crash points one by one, random kills, races, and what the journal costs."""
