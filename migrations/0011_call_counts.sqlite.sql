-- How many calls each token made in the minutes just past, on all replicas together. Rows live for
-- minutes. They do not refer to the namespace: that would wait for whoever is changing it.
CREATE TABLE call_counts (
  namespace TEXT NOT NULL,
  -- A token, or '' for the namespace as a whole.
  accessor TEXT NOT NULL,
  -- The number of the minute, counted from 1970.
  minute INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  PRIMARY KEY (namespace, accessor, minute)
) WITHOUT ROWID;
