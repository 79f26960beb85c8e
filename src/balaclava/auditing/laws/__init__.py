"""Laws: compare what mechanisms, indices and reports draw with what is claimed for them."""
