"""How text becomes an objective's features, a file per paper."""
