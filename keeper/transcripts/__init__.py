"""Keeps transcripts: what a record is, how two copies fold into one, and what is done with each."""
