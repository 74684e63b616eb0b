"""Archives: entries, deliveries and attempts of past days as Parquet files, with the seals that verify the entries."""
