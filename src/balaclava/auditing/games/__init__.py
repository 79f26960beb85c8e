"""Games: play neighbouring reward streams many times and tell them apart by statistics."""
