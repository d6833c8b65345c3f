"""The scorecard: 36 things that go wrong, what coterie does then, and the tests that show it."""
