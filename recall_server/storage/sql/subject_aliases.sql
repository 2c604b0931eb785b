-- query: subject_aliases
SELECT subject, alias FROM subject_aliases WHERE namespace = :namespace
ORDER BY subject_key, alias_key

-- query: add_subject_alias
INSERT INTO subject_aliases (namespace, alias_key, subject_key, subject, alias)
VALUES (:namespace, :alias_key, :subject_key, :subject, :alias)

-- query: remove_subject_aliases
DELETE FROM subject_aliases WHERE namespace = :namespace AND alias_key IN (:keys...)
RETURNING subject, alias
