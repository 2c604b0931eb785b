"""Rules of trust, tokens, quarantine and the audit chain. No I/O."""
