"""What leaves clients, watched, attacked and written down: `coterie audit`."""
