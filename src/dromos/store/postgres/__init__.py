"""PostgreSQL's own ways: connections that come back, and transactions whose outcome is always found out."""
