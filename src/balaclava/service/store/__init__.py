"""What lies on the disk: the database, its SQL and migrations, and the privacy ledger."""
