-- reads: 0051
-- An erasure deletes what is kept of an answer if the name of the model in it is erased.
GRANT UPDATE (answer) ON memory_events TO recall_eraser;
