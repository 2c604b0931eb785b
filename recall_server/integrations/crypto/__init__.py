"""Keys, JSON web tokens and sealed secrets."""
