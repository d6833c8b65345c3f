"""Worker processes that answer questions side by side, and the memory they share."""
