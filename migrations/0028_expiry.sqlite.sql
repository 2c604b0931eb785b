-- A text may say until when it is to be found, and what was made of it goes with it. The column
-- `expired_at` of episodes has been there for that from the beginning.
ALTER TABLE memories ADD COLUMN expires_at TEXT;
-- One more status. SQLite changes a check by making the table anew, which others refer to, or so:
-- what is stored stays as it is (https://www.sqlite.org/lang_altertable.html, section 7).
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''superseded'', ''forgotten''',
  '''superseded'', ''expired'', ''forgotten''')
WHERE type = 'table' AND name = 'memories';
PRAGMA writable_schema = RESET;
