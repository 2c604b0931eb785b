-- Why a language model decided as it did, in its words, and how sure it was; null where no model did.
ALTER TABLE decisions ADD COLUMN judge_reason TEXT;
ALTER TABLE decisions ADD COLUMN judge_confidence DOUBLE PRECISION;
-- A dispute that was opened again, as its answer was undone, is decided anew. Erasures take the
-- reason out of the decisions about memories that stay.
GRANT UPDATE ON decisions TO recall_app;
CREATE INDEX decisions_judged ON decisions (namespace, question_id) WHERE judge_reason IS NOT NULL;
