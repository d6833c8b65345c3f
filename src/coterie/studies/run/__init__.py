"""One run from its experiment file to its summary: the road that every run takes."""
