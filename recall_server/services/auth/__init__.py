"""Issue, verify, delegate and revoke tokens."""
