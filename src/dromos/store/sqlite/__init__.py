"""SQLite's own ways: one connection that writes, a few that read, and the lock beside the file."""
