"""The published table and figures as data: what to run (`specs`), and what came out (`records`)."""
