"""The operations, without protocols, SQL or the environment."""
