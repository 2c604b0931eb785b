-- Which process took the job last: where it is known to be gone, nobody waits for the lease. NULL: the
-- lease decides.
ALTER TABLE operations ADD COLUMN holder INTEGER;
CREATE INDEX operations_held ON operations (holder)
  WHERE state = 'processing' AND holder IS NOT NULL;
