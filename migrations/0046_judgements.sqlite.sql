-- Why a language model decided as it did, in its words, and how sure it was; null where no model did.
ALTER TABLE decisions ADD COLUMN judge_reason TEXT;
ALTER TABLE decisions ADD COLUMN judge_confidence REAL;
CREATE INDEX decisions_judged ON decisions (namespace, question_id) WHERE judge_reason IS NOT NULL;
