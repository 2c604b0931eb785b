-- What a memory is made of, beside its type: of one event, of statements, or of several memories.
ALTER TABLE memories ADD COLUMN layer TEXT NOT NULL DEFAULT 'semantic'
  CHECK (layer IN ('episodic', 'semantic', 'schema'));
