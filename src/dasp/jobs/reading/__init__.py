"""Data files as chunks of rows."""
