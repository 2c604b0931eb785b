-- Containers that are being erased: nothing of them is found until they are.
CREATE TABLE closed_containers (
  namespace TEXT NOT NULL REFERENCES namespaces (namespace),
  erasure_id TEXT NOT NULL,
  container TEXT NOT NULL,
  PRIMARY KEY (namespace, erasure_id)
) WITHOUT ROWID;
