"""Export and import a namespace."""
