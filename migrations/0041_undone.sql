-- By these events a change is known as one that was taken back.
CREATE INDEX memory_events_undone ON memory_events (namespace, item_id) WHERE kind = 'undone';
