-- Texts are cut into passages by other rules, which know more headings, so the index is made anew.
UPDATE namespaces SET words_stale = TRUE;
