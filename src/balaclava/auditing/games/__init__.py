"""Games: play neighbouring reward streams many times and distinguish them by statistics."""
