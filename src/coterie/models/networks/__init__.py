"""The papers' networks, each a function of a sample's shape and the number of classes."""
