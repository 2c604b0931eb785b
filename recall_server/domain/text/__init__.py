"""Text: cleaning, terms, dates and transcripts. No I/O."""
