-- reads: 0055
-- What the labels of a memory count towards the quota, beyond 256 bytes: they are copies of those of
-- its text.
ALTER TABLE memories ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE memories SET stored_bytes = labels.size - 256
FROM (
  SELECT m.namespace AS of_namespace, m.id AS of_id, length(CAST(
    m.topic || COALESCE(m.session_id, '') || COALESCE(m.agent_id, '') || m.container
    || COALESCE(m.tags, '') || COALESCE(m.metadata, '') AS BLOB)) AS size
  FROM memories m
) AS labels
WHERE namespace = of_namespace AND id = of_id AND labels.size > 256;
UPDATE namespaces SET stored_bytes = stored_bytes + COALESCE((
  SELECT sum(m.stored_bytes) FROM memories m WHERE m.namespace = namespaces.namespace), 0);
