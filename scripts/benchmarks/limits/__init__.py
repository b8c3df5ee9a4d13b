"""What the machine could do at best, and what a step of an artifact asks of it."""
