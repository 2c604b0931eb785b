-- The erase epoch of the namespace when the row was written, and that after an erasure: what an
-- erasure found has a smaller one than it, whatever a clock or a file says.
ALTER TABLE episodes ADD COLUMN erase_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memories ADD COLUMN erase_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE erasures ADD COLUMN erase_epoch INTEGER;
-- When the files were last written anew. NULL: not yet.
ALTER TABLE server ADD COLUMN purged_at TEXT;
