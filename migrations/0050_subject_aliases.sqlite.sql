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
