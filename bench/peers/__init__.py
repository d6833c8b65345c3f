"""Other libraries, each as one imports it from the package index, in its best configuration."""
