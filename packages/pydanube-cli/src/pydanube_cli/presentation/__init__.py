"""How results are printed: tables, pages of help, JSON and progress."""
