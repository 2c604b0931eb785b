-- How many calls each token made in the minutes just past, on all replicas together. Rows live for
-- minutes. They do not refer to the namespace: that would wait for whoever is changing it.
CREATE TABLE call_counts (
  namespace TEXT NOT NULL,
  -- A token, or '' for the namespace as a whole.
  accessor TEXT NOT NULL,
  -- The number of the minute, counted from 1970.
  minute BIGINT NOT NULL,
  calls BIGINT NOT NULL,
  PRIMARY KEY (namespace, accessor, minute)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON call_counts TO recall_system;
GRANT SELECT, DELETE ON call_counts TO recall_app;
ALTER TABLE call_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE call_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON call_counts TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
CREATE POLICY across ON call_counts TO recall_system USING (true) WITH CHECK (true);
