"""What every stage needs of files and people: whole-file writes, tables, sizes and numbers, JSON, and errors."""
