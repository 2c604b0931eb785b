-- Turns that are held back, and what was decided about them.
-- Why a turn is hidden: what it was suspected of. Released, it is an ordinary turn again; rejected,
-- it stays hidden for good. The text stands in its episode only.
CREATE TABLE quarantine (
  namespace TEXT NOT NULL,
  item_id TEXT COLLATE "C" NOT NULL,
  episode_id TEXT NOT NULL,
  reasons JSONB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('held', 'released', 'rejected')),
  held_at TIMESTAMPTZ NOT NULL,
  decided_by TEXT,
  decided_at TIMESTAMPTZ,
  PRIMARY KEY (namespace, item_id),
  FOREIGN KEY (namespace, episode_id) REFERENCES episodes (namespace, id)
);
CREATE INDEX quarantine_by_state ON quarantine (namespace, state, held_at, item_id);
CREATE INDEX quarantine_by_episode ON quarantine (namespace, episode_id);

GRANT SELECT, INSERT, UPDATE ON quarantine TO recall_app;
GRANT DELETE ON quarantine TO recall_eraser;
ALTER TABLE quarantine ENABLE ROW LEVEL SECURITY;
ALTER TABLE quarantine FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON quarantine TO recall_app
  USING (namespace = current_setting('recall.namespace', true))
  WITH CHECK (namespace = current_setting('recall.namespace', true));
