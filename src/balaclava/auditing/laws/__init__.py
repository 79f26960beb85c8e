"""Laws: compare the laws of mechanisms, indices and reports with the claims for them."""
