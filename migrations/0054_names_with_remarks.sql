-- A name with a remark heads the notes below it, so the index is made anew.
UPDATE namespaces SET words_stale = TRUE;
