-- Holds the number until the branch that has it is merged.
SELECT 1;
