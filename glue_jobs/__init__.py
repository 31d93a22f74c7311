"""The jobs that AWS Glue runs over the archive; the same code runs on a laptop. One folder a job."""
