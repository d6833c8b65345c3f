"""How samples are handed out: the words of dealing, the bases, the modifiers, the test sets."""
