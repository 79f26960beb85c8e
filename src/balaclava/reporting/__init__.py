"""HTML pages: reports, comparisons, and the page for a review board."""
