-- On SQLite whoever may erase may write every column.
SELECT 1;
