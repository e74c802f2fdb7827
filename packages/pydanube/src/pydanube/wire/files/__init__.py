"""The formats of the files on disk: journal, segments and staged parts."""
