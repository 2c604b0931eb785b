-- The passages that a citation touches, and the citations that touch a passage, are looked up by
-- their places.
CREATE INDEX documents_by_place ON documents (namespace, turn_id, span_start)
  WHERE turn_id IS NOT NULL;
DROP INDEX citations_by_episode;
CREATE INDEX citations_by_episode ON citations (namespace, episode_id, span_start, span_end);
