"""What the jobs share: the archive as objects, its rows as Spark reads them, the hours of its folders."""
