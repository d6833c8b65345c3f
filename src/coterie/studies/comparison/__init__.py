"""Running a comparison: methods x seeds on equal terms, each cell an ordinary run."""
