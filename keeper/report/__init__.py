"""What a person looks at: the page, and the metrics."""
