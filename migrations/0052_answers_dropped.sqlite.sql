-- reads: 0051
-- The twin for Postgres lets erasures delete what is kept of an answer; SQLite has no roles.
SELECT 1;
