"""How many participants a trial takes."""
