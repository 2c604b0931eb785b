-- Background work that fails again and again, for the operator.
CREATE TABLE failing_work (
  work TEXT NOT NULL PRIMARY KEY,
  -- A code of ours, or the kind of an error that nobody expected; never its text.
  error TEXT NOT NULL,
  failures INTEGER NOT NULL,
  -- When it failed last: a note that is older than a few minutes is history.
  at TEXT NOT NULL
) WITHOUT ROWID;
