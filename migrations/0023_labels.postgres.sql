-- An erasure takes a subject's name out of these labels too.
GRANT UPDATE (name, group_id, source_model, source_description, tags, metadata)
  ON episodes TO recall_eraser;
