"""Published and measured speeds as rows of a table: what ran, on which machine, how fast; and each as a question."""
