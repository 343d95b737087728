"""Each selection with the phases that it runs and the account that it keeps."""
