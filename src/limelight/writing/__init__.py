"""Writing: numbers and tables for people, files for keeps."""
