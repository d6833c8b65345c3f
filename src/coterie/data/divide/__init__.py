"""How samples are handed out: dealing, the bases, the modifiers."""
