-- Containers that are being erased: nothing of them is found until they are.
CREATE TABLE closed_containers (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  erasure_id TEXT NOT NULL,
  container TEXT NOT NULL,
  PRIMARY KEY (namespace, erasure_id)
);

GRANT SELECT ON closed_containers TO recall_app;
GRANT INSERT, DELETE ON closed_containers TO recall_eraser;
ALTER TABLE closed_containers ENABLE ROW LEVEL SECURITY;
ALTER TABLE closed_containers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON closed_containers TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
