"""Files and tables in; annotations, gold and inputs out."""
