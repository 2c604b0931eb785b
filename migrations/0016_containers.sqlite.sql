-- Containers: named rooms within a namespace; '' is the room of what is in none.
ALTER TABLE episodes ADD COLUMN container TEXT NOT NULL DEFAULT '';
ALTER TABLE memories ADD COLUMN container TEXT NOT NULL DEFAULT '';
-- The one container of which alone a run shows anything; null where it shows more.
ALTER TABLE runs ADD COLUMN container TEXT DEFAULT '';
-- Those that a token is limited to; null: any.
ALTER TABLE api_tokens ADD COLUMN containers TEXT;
