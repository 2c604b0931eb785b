-- Other names of a subject: facts about them are facts about it. `alias_key` and `subject_key` are
-- the names as they are compared.
CREATE TABLE subject_aliases (
  namespace TEXT NOT NULL,
  alias_key TEXT NOT NULL,
  subject_key TEXT NOT NULL,
  subject TEXT NOT NULL,
  alias TEXT NOT NULL,
  PRIMARY KEY (namespace, alias_key)
);
GRANT SELECT, INSERT, DELETE ON subject_aliases TO recall_app;
ALTER TABLE subject_aliases ENABLE ROW LEVEL SECURITY;
ALTER TABLE subject_aliases FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON subject_aliases TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
