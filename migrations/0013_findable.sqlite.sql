-- A memory is found by the words of the turn that it rests on too, and every item by its speaker:
-- the word indexes made before are made anew when the server starts.
ALTER TABLE namespaces ADD COLUMN words_stale INTEGER NOT NULL DEFAULT FALSE;
UPDATE namespaces SET words_stale = TRUE;

-- The turn of a place in an episode.
CREATE INDEX turns_by_place ON turns (namespace, episode_id, span_start);
