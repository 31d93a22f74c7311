"""Shared by the jobs: the archive as objects, its rows as Spark reads them, the hours of its folders."""
