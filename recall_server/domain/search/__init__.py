"""Rules of ranking. No I/O."""
