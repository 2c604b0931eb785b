-- A text may say until when it is to be found, and what was made of it goes with it. The column
-- `expired_at` of episodes has been there for that from the beginning.
ALTER TABLE memories ADD COLUMN expires_at TIMESTAMPTZ;
ALTER TABLE memories DROP CONSTRAINT memories_status_check;
ALTER TABLE memories ADD CONSTRAINT memories_status_check
  CHECK (status IN ('active', 'superseded', 'expired', 'forgotten'));
