"""Read, export, sign and verify the audit log."""
