"""Files: tables for machines and people, pictures, and one page on everything."""
