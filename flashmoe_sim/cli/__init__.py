"""The command line: one file per verb; a verb parses, calls one public function and prints."""
