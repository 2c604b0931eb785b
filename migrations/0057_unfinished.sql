-- reads: 0055
-- The tasks of a token that have not ended, by what they take, so that a revocation reads no task to
-- know that.
CREATE INDEX runs_unfinished ON runs (namespace, accessor, stored_bytes, id)
  WHERE state IN ('submitted', 'working', 'input-required');
