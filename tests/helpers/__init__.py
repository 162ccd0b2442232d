"""What several tests need: small models, runs, files of the kinds that people have."""
