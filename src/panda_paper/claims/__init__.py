"""The paper's claims, each judged from result rows."""
