"""The Postgres driver."""
