"""Reading a log of decisions: CSV or Parquet cells, numbers in common notations, checked rows."""
