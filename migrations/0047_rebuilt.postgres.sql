-- What a rebuild has derived so far, in batches: it goes on behind them when it was interrupted. The
-- rows are deleted when it ends, and by every erasure.
CREATE TABLE rebuilt (
  namespace TEXT NOT NULL,
  number BIGINT NOT NULL,
  -- The release whose rules derived it, and the last event and version of the index that it includes.
  release TEXT NOT NULL,
  last_event BIGINT NOT NULL,
  index_version BIGINT NOT NULL,
  -- The last memory, or the last text, that it includes; the other is ''.
  memory_id TEXT NOT NULL,
  episode_id TEXT NOT NULL,
  derived TEXT NOT NULL,
  PRIMARY KEY (namespace, number)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON rebuilt TO recall_app;
ALTER TABLE rebuilt ENABLE ROW LEVEL SECURITY;
ALTER TABLE rebuilt FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON rebuilt TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
